/* Tests that a process ends with the one that started it, whenever that ends. */
#include "base/child.h"
#include "checks.h"

#include <stdbool.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void swallow(int number)
{
    (void)number;
}

/* Starts a parent, which starts a child. The parent ends before or after the child's call. Returns how the child
 * ended. */
static int end_of_child(bool parent_ends_first)
{
    int parent_lives[2], child_called[2], how;
    pid_t children[2];
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* so that the child's end is told here */
    assert_true(pipe(parent_lives) == 0 && pipe(child_called) == 0);
    children[0] = fork();
    if (children[0] == 0) {
        const pid_t parent = getpid();
        char byte;
        signal(SIGTERM, swallow);
        if (fork() != 0) {
            close(child_called[1]);
            _exit(!parent_ends_first && read(child_called[0], &byte, 1) != 1);
        }
        close(parent_lives[1]);
        if (parent_ends_first) /* the pipe ends with the parent */
            while (getppid() == parent && read(parent_lives[0], &byte, 1) > 0)
                ;
        alarm(60);
        gw_child_end_with(parent, SIGTERM);
        if (write(child_called[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    close(parent_lives[1]), close(parent_lives[0]);
    close(child_called[0]), close(child_called[1]);
    assert_int_equal(waitpid(children[0], &how, 0), children[0]);
    assert_int_equal(how, 0);
    assert_true(waitpid(-1, &how, 0) > 0);
    return how;
}

TEST(a_child_ends_with_its_parent)
{
    int how = end_of_child(false);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
}

TEST(a_child_of_a_dead_parent_ends)
{
    int how = end_of_child(true);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM);
}

RUN_TESTS("child", NULL, NULL)

/* Runs every file of a folder through all entries. Usage: fuzz_corpus FOLDER */
#include "entries.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (1u << 20)
#define GOOD_HEAD "pserver-good-" /* files whose heads must be read as good */

int main(int argc, char **argv)
{
    static uint8_t bytes[MAX_BYTES];
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
        return 2;
    }
    int n_files = 0, n_failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (!file)
            continue;
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        printf("%s\n", entry->d_name);
        fflush(stdout); /* the last name printed is the one that fails */
        gw_fuzz_decode(bytes, size);
        gw_fuzz_inspect(bytes, size);
        gw_fuzz_reduce(bytes, size);
        gw_fuzz_join(bytes, size);
        gw_fuzz_pserver(bytes, size);
        gw_fuzz_client(bytes, size);
        if (strncmp(entry->d_name, GOOD_HEAD, strlen(GOOD_HEAD)) == 0 && !gw_fuzz_pserver_is_good(bytes, size)) {
            printf("is not in good order any more, though its name says so\n");
            n_failed++;
        }
        n_files++;
    }
    closedir(folder);
    printf("%d files\n", n_files);
    return n_files > 0 && n_failed == 0 ? 0 : 1;
}

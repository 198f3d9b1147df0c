#include "file.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

gw_status gw_file_open(const char *folder, const char *name, struct gw_file *file)
{
    file->stream = NULL;
    if (snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >= (int)sizeof file->path)
        return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is longer than %zu bytes", folder, sizeof file->path - 1);
    snprintf(file->partial, sizeof file->partial, "%s" GW_PARTIAL, file->path);
    file->stream = fopen(file->partial, "wbe");
    if (!file->stream)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", file->partial, strerror(errno));
    return GW_OK;
}

static gw_status write_error(const struct gw_file *file)
{
    return gw_fail(GW_ERR_SYSTEM, "writing %s failed: %s", file->partial, strerror(errno));
}

gw_status gw_file_check(struct gw_file *file)
{
    return file->stream && ferror(file->stream) ? write_error(file) : GW_OK;
}

/* The rename itself is on disk only when the folder is. */
static void sync_folder(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

gw_status gw_file_commit(struct gw_file *file)
{
    if (!file->stream)
        return gw_fail(GW_ERR_ORDER, "%s is not open", file->path);
    gw_status status = GW_OK;
    if (ferror(file->stream) || fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0)
        status = write_error(file);
    if (fclose(file->stream) != 0 && status == GW_OK)
        status = write_error(file);
    file->stream = NULL;
    if (status == GW_OK && rename(file->partial, file->path) != 0)
        status = gw_fail(GW_ERR_SYSTEM, "%s cannot be renamed to %s: %s", file->partial, file->path, strerror(errno));
    if (status == GW_OK)
        sync_folder(file->path);
    else
        unlink(file->partial);
    return status;
}

void gw_file_discard(struct gw_file *file, bool keep)
{
    if (!file->stream)
        return;
    fclose(file->stream);
    file->stream = NULL;
    if (!keep)
        unlink(file->partial);
}

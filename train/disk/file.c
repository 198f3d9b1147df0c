/* Writes files that appear under their name only when they are whole, and reads whole files. */
#include "disk/file.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

gw_status gw_file_open(const char *folder, const char *name, bool again, struct gw_file *file)
{
    file->stream = NULL;
    if (snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >= (int)sizeof file->path)
        return gw_fail(GW_ERR_ARGUMENT, "the path %.40s... is longer than %zu bytes", folder, sizeof file->path - 1);
    snprintf(file->partial, sizeof file->partial, "%s" GW_PARTIAL, file->path);
    if (again && access(file->partial, F_OK) != 0 && rename(file->path, file->partial) != 0 && errno != ENOENT)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be renamed to %s: %s", file->path, file->partial, strerror(errno));
    if (again)
        file->stream = gw_fopen(file->partial, "r+be");
    if (!file->stream && (!again || errno == ENOENT))
        file->stream = gw_fopen(file->partial, "w+be");
    if (!file->stream)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be written: %s", file->partial, strerror(errno));
    struct stat st;
    if (fstat(fileno(file->stream), &st) == 0 && S_ISREG(st.st_mode))
        return GW_OK;
    gw_file_discard(file, true);
    return gw_fail(GW_ERR_SYSTEM, "%s is no regular file", file->partial); /* to read a pipe would wait for a writer */
}

bool gw_file_line(FILE *stream, char text[GW_FILE_LINE])
{
    return fgets(text, GW_FILE_LINE, stream) && strchr(text, '\n');
}

/* If an earlier write failed and nobody looked, errno may tell of another call by now. So this function asks again
 * whether the disk is full. */
static gw_status write_error(const struct gw_file *file)
{
    int error = errno;
    if (file->stream && ferror(file->stream)) {
        struct statvfs disk;
        if (fstatvfs(fileno(file->stream), &disk) == 0 && disk.f_bavail == 0)
            error = ENOSPC;
    }
    return gw_fail(GW_ERR_SYSTEM, "writing %s failed: %s", file->partial, strerror(error));
}

gw_status gw_file_check(struct gw_file *file)
{
    return file->stream && ferror(file->stream) ? write_error(file) : GW_OK;
}

gw_status gw_file_cut(struct gw_file *file, long at)
{
    if (fflush(file->stream) != 0 || ftruncate(fileno(file->stream), at) != 0 || fseek(file->stream, at, SEEK_SET) != 0)
        return write_error(file);
    return GW_OK;
}

gw_status gw_file_sync(struct gw_file *file)
{
    if (ferror(file->stream) || fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0)
        return write_error(file);
    return GW_OK;
}

gw_status gw_file_commit(struct gw_file *file)
{
    if (!file->stream)
        return gw_fail(GW_ERR_ORDER, "%s is not open", file->path);
    gw_status status = gw_file_sync(file);
    FILE *stream = file->stream;
    file->stream = NULL;
    if (fclose(stream) != 0 && status == GW_OK)
        status = write_error(file);
    if (status == GW_OK && gw_files_publish(AT_FDCWD, file->partial, file->path, true) != 0)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot get its name: %s", file->path, strerror(errno));
    if (status < 0)
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

gw_status gw_file_read(const char *path, size_t most, uint8_t **bytes, size_t *n_bytes, uint64_t *file_bytes)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* to open a pipe would wait for a writer */
        return gw_fail(GW_ERR_SYSTEM, "%s is no regular file", path);
    FILE *stream = gw_fopen(path, "rbe");
    if (!stream)
        return gw_fail(GW_ERR_SYSTEM, "%s cannot be opened: %s", path, strerror(errno));
    gw_status status = GW_OK;
    if (fstat(fileno(stream), &st) != 0 || !S_ISREG(st.st_mode))
        status = gw_fail(GW_ERR_SYSTEM, "%s is no regular file", path);
    *file_bytes = status == GW_OK ? (uint64_t)st.st_size : 0;
    *n_bytes = *file_bytes < most ? (size_t)*file_bytes : most;
    *bytes = status == GW_OK ? gw_alloc(NULL, *n_bytes, 1) : NULL;
    if (status == GW_OK && !*bytes)
        status = GW_ERR_MEMORY;
    if (status == GW_OK && fread(*bytes, 1, *n_bytes, stream) != *n_bytes)
        status = gw_fail(GW_ERR_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    fclose(stream);
    if (status != GW_OK) {
        gw_free(NULL, *bytes);
        *bytes = NULL;
    }
    return status;
}

gw_status gw_file_read_json(const char *path, size_t most, const char *what, json_t **json)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    uint64_t file_bytes = 0;
    json_error_t error;
    *json = NULL;
    GW_TRY(gw_file_read(path, most, &bytes, &n_bytes, &file_bytes));
    if (file_bytes <= most)
        *json = json_loadb((const char *)bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    gw_free(NULL, bytes);
    if (file_bytes > most)
        return gw_fail(GW_ERR_SYSTEM, "%s has %llu bytes, and must have %zu at most; %s", path,
                       (unsigned long long)file_bytes, most, what);
    return *json ? GW_OK : gw_fail(GW_ERR_SYSTEM, "%s, line %d: %s; %s", path, error.line, error.text, what);
}

gw_status gw_file_write_json(const char *folder, const char *name, json_t *json)
{
    struct gw_file file;
    gw_status status = json ? gw_file_open(folder, name, false, &file)
                            : gw_fail(GW_ERR_MEMORY, "out of memory for %s/%s", folder, name);
    if (status == GW_OK) {
        const bool whole = json_dumpf(json, file.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) == 0;
        fputc('\n', file.stream);
        if (whole || ferror(file.stream)) {
            status = gw_file_commit(&file);
        } else {
            gw_file_discard(&file, false);
            status = gw_fail(GW_ERR_MEMORY, "out of memory for %s", file.path);
        }
    }
    json_decref(json);
    return status;
}

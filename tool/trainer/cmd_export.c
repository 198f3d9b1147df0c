/* gradwire export: writes a run's parameters as .npy files, one for each tensor. No file gets its name before all of
 * them are whole, so that a part of an export does not look like all of it. */
#include "disk/checkpoint.h"
#include "disk/folder.h"
#include "npy.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_path(char path[4096], const char *folder, int array, const struct gw_param *p)
{
    return snprintf(path, 4096, "%s/%s%s.npy", folder, gw_array_prefixes[array], p->name) < 4096
               ? TOOL_DONE
               : tool_fail("the folder's name is too long");
}

static bool writes(const struct gw_checkpoint *c, const char *name)
{
    char path[4096];
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; c->arrays[k] && t < gw_array_tensors(&c->network, k); t++)
            if (write_path(path, ".", k, gw_array_tensor(&c->network, t)) == TOOL_DONE && strcmp(path + 2, name) == 0)
                return true;
    return false;
}

/* Refuses a folder with files that would stay: they are of another run or step. */
static int check_folder(const struct gw_checkpoint *c, const char *folder)
{
    int status = TOOL_DONE;
    DIR *listing = opendir(folder);
    if (!listing)
        return tool_fail("%s cannot be read: %s", folder, strerror(errno));
    for (const struct dirent *entry; status == TOOL_DONE && (entry = readdir(listing));) {
        const char *suffix = strrchr(entry->d_name, '.');
        if (suffix && strcmp(suffix, ".npy") == 0 && !writes(c, entry->d_name))
            status = tool_fail("%s/%s is of an earlier export, and this one has no such tensor; name another folder",
                               folder, entry->d_name);
    }
    closedir(listing);
    return status;
}

/* The files of an export. */
struct files {
    tool_output *outputs; /* written, without their names */
    size_t n;
    json_t *paths;
};

/* Writes DIR/PREFIXNAME.npy for every tensor of the array. */
static int export_array(const struct gw_checkpoint *c, int array, const char *folder, struct files *files)
{
    const float *values = c->arrays[array];
    for (uint32_t t = 0; values && t < gw_array_tensors(&c->network, array); t++) {
        const struct gw_param *p = gw_array_tensor(&c->network, t);
        char path[4096];
        TOOL_TRY(write_path(path, folder, array, p));
        TOOL_TRY(tool_npy_write(&files->outputs[files->n], path, values + p->offset, p->dims, p->rank));
        files->n++;
        json_array_append_new(files->paths, gw_json_text(path));
    }
    return TOOL_DONE;
}

static int export_all(const struct gw_checkpoint *c, const char *folder, struct files *files)
{
    size_t most = 0;
    for (int k = 0; k < GW_ARRAYS; k++)
        most += c->arrays[k] ? gw_array_tensors(&c->network, k) : 0;
    *files = (struct files){.outputs = calloc(most, sizeof *files->outputs), .paths = json_array()};
    int status = files->outputs ? check_folder(c, folder) : tool_fail("out of memory");
    for (int k = 0; k < GW_ARRAYS && status == TOOL_DONE; k++)
        status = export_array(c, k, folder, files);
    if (status == TOOL_DONE)
        status = tool_output_commit_all(files->outputs, files->n);
    for (size_t i = 0; i < files->n; i++)
        tool_output_discard(&files->outputs[i]);
    free(files->outputs);
    return status;
}

int gw_cmd_export(int argc, char **argv)
{
    const char *from = NULL, *folder = NULL;
    bool json = false;
    const tool_option options[] = {
        {"--from", "RUN", "a run's folder, or a parameter file", TOOL_TEXT, &from},
        {"-o", "DIR", "folder for the files; it is made if it is missing", TOOL_OUTPUT, &folder},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "export --from RUN -o DIR [--json]",
        .about =
            "Writes every tensor of a run's parameters as DIR/NAME.npy (conv1.weight.npy, ...). The optimizer "
            "state of a checkpoint becomes momentum.NAME.npy and variance.NAME.npy, the moving average ema.NAME.npy. A "
            "folder with such files of an earlier export is refused, if this one would not replace them. If a file "
            "cannot be written, none gets its name.",
        .example = "gradwire export --from runs/ternary -o parameters",
        TOOL_OPTIONS(options),
        .args = "export takes options only",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!from || !folder)
        return tool_wrong_use("%s is missing", !from ? "--from RUN" : "-o DIR");
    struct gw_checkpoint c;
    gw_status status = gw_checkpoint_read(from, &c);
    if (status == GW_OK)
        status = gw_folder_create(folder);
    if (status != GW_OK) {
        gw_checkpoint_free(&c);
        return tool_exit_status(status, NULL);
    }
    struct files files;
    int exit_status = export_all(&c, folder, &files);
    if (exit_status == TOOL_DONE && json)
        exit_status = tool_print_json(
            json_pack("{s:s, s:I, s:O}", "net", c.network.name, "step", (json_int_t)c.step, "files", files.paths));
    else if (exit_status == TOOL_DONE)
        tool_note("%zu tensors of %s written to %s", files.n, c.network.name, folder);
    json_decref(files.paths);
    gw_checkpoint_free(&c);
    return exit_status;
}

/* What the sets of selection's kernels on x86 have alike: how a run chooses one of the variants of select_run, and the
 * record. Define before including: GW_SUFFIX(name), GW_NAME, GW_ADD (the kernel `add`), TARGET,
 * and the other kernels. */

TARGET static struct gw_select_counts GW_SUFFIX(select)(const struct gw_select_run *run, float *values)
{
    if (!run->residual)
        return select_run(run, values, false, GW_VALUE_F32);
    switch (run->value) {
    case GW_VALUE_BF16:
        return select_run(run, values, true, GW_VALUE_BF16);
    case GW_VALUE_F16:
        return select_run(run, values, true, GW_VALUE_F16);
    default:
        return select_run(run, values, true, GW_VALUE_F32);
    }
}

const struct gw_select_kernels GW_SUFFIX(gw_select_kernels) = {
    .name = GW_NAME,
    .select = GW_SUFFIX(select),
    .expand = GW_SUFFIX(expand),
    .add = GW_ADD,
    .below = GW_SUFFIX(below),
    .lower = GW_SUFFIX(lower),
    .join = gw_select_join_avx2,
    .rests = gw_select_rests_avx2,
};

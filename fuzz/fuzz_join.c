/* The fuzzer of the tcp link's meeting. libFuzzer calls it with bytes of its own making; fuzz/entries.c does the
 * work. */
#include "entries.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return gw_fuzz_join(data, size);
}

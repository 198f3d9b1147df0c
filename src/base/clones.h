/* Compiles a loop over plain arrays in several variants; the best one for the machine is chosen at run time. Every
 * variant multiplies and adds in separate steps (never fused), so that all give the same bits. */
#ifndef GW_BASE_CLONES_H
#define GW_BASE_CLONES_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define GW_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default"), optimize("O3")))
#else
#define GW_CLONES
#endif

#endif

/* A program outside Gradwire: packs a tensor, reads it back, and with WITH_MPI calls the mpi link too. */
#include <gradwire/gradwire.h>
#include <math.h>
#include <stdio.h>
#ifdef WITH_MPI
#include <gradwire/link_mpi.h>
#endif

int main(void)
{
    enum { N = 1000 };
    float gradient[N], back[N];
    unsigned char frame[8192];
    size_t frame_bytes;
    for (int i = 0; i < N; i++)
        gradient[i] = sinf((float)i);
    gw_codec *codec;
    gw_encoder *encoder;
    gw_tensor tensor = {.name = "w", .n_elems = N};
    if (gw_codec_parse(NULL, "none", &codec) || gw_encoder_create(NULL, codec, &tensor, &encoder) ||
        gw_encoder_measure_encode(encoder, gradient, NULL, &(gw_draw){.seed = 1}, frame, sizeof frame, &frame_bytes,
                                  NULL) ||
        gw_decode(NULL, frame, frame_bytes, back, N)) {
        fprintf(stderr, "%s\n", gw_last_error());
        return 1;
    }
    for (int i = 0; i < N; i++)
        if (back[i] != gradient[i])
            return 1;
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
#ifdef WITH_MPI
    gw_link link;
    if (gw_link_mpi_create(NULL, MPI_COMM_WORLD, &link) != GW_ERR_ORDER) /* too early */
        return 1;
#endif
    printf("gradwire %s\n", gw_version());
    return 0;
}

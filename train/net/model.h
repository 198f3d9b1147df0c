/* A model: one instance of a network for one batch size, on one thread. */
#ifndef GW_TRAIN_MODEL_H
#define GW_TRAIN_MODEL_H

#include "net/network.h"

struct gw_model;

/* params and grads are flat arrays of the network; grads NULL: the model goes forward only. statistics: the floats
 * behind the trained ones of such an array (NULL if the network has none). All arrays must outlive the model. Create
 * and use a model on one thread. */
gw_status gw_model_create(const struct gw_network *network, dnnl_engine_t engine, uint32_t batch, float *params,
                          float *grads, float *statistics, struct gw_model **out);
void gw_model_destroy(struct gw_model *model);

/* Where the caller writes the batch: [batch][channels][height][width]. */
float *gw_model_input(struct gw_model *model);

/* The output of the last layer: [batch][classes]. */
const float *gw_model_logits(const struct gw_model *model);

gw_status gw_model_forward(struct gw_model *model, const struct gw_pass *pass);

/* Softmax and cross entropy over the first n samples of the batch. Adds the losses to *loss, in sample order. Counts
 * the samples whose largest logit is the label's; if several are equal, the one with the lowest index is meant. If the
 * model trains, prepares backward with the gradient of scale * (sum of losses). */
void gw_model_loss(struct gw_model *model, const uint8_t *labels, uint32_t n, float scale, double *loss,
                   uint32_t *correct);

/* Goes from the last layer to the first. It calls pass->ready for each tensor as soon as its gradient is there. */
gw_status gw_model_backward(struct gw_model *model, const struct gw_pass *pass);

/* Notes that the last step counts: what layers learnt of their values (batch norm) goes into the statistics. A step
 * that is dropped changes nothing. */
void gw_model_keep(struct gw_model *model);

#endif

/* Reading the shape of a decoder-only model from a file's metadata. */
#ifndef SN_HPARAMS_H
#define SN_HPARAMS_H

#include "model/loader.h"

/* Reads "<prefix>.*" into m->hp, allocates m->layers and m->rope_freq. What the graph cannot do (experts, a RoPE
 * scaling that depends on length, a window shorter than the context) is refused with its key. */
sennit_status sn_hparams_read(struct sennit_model *m, struct sn_loader *ld, const char *prefix,
                              struct sennit_error *err);

#endif

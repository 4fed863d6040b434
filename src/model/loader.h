/* From a file's tensors to packed weights. Each tensor is taken once; what no graph took is an error, because a
 * weight that is silently left out makes a wrong model. */
#ifndef SN_LOADER_H
#define SN_LOADER_H

#include "model/model.h"

struct sn_loader {
    struct sn_heap *heap;
    const struct sn_gguf *gguf;
    struct sn_pool *threads;
    bool *taken; /* [n_tensors] */
    void **arena;        /* the model's: all matrices, one after the other; NULL in it until the first is loaded */
    size_t *arena_bytes; /* the model's */
    size_t arena_used;
    uint64_t n_parameters;
};

/* *arena gets room for all matrices of the file in one block, so that it lies on huge pages: streaming weights from
 * small ones costs a tenth of the bandwidth and more under virtualisation. The first matrix allocates it, so that a
 * model whose metadata are refused costs none. *arena and *arena_bytes: 0 at the start, owned by the caller on
 * success and failure. */
sennit_status sn_loader_init(struct sn_loader *ld, struct sn_heap *heap, const struct sn_gguf *g, uint32_t n_threads,
                             void **arena, size_t *arena_bytes, struct sennit_error *err);
void sn_loader_release(struct sn_loader *ld);

bool sn_loader_has(const struct sn_loader *ld, const char *name);
/* f32 [n], from F32, F16 or BF16. *out: owned by the heap under SN_USE_WEIGHTS, n * 4 bytes. */
sennit_status sn_load_vector(struct sn_loader *ld, const char *name, size_t n, float **out, struct sennit_error *err);
/* A matrix of n_out rows of n_in values, repacked. out->data: in the arena. */
sennit_status sn_load_matrix(struct sn_loader *ld, const char *name, size_t n_in, size_t n_out,
                             struct sn_weights *out, struct sennit_error *err);
/* SENNIT_UNSUPPORTED naming the first tensor that was not taken. */
sennit_status sn_loader_finish(const struct sn_loader *ld, struct sennit_error *err);

#endif

#include "model/loader.h"

#include "base/cpu.h"
#include "tensor/traits.h"

#include <stdio.h>

/* Bytes of a tensor in the arena; 0 for one that is no matrix of a type that can run (it is refused when taken). */
static size_t arena_share(const struct sn_gguf_tensor *t)
{
    if (t->n_dims != 2 || !sn_weights_supported((sennit_type)t->type))
        return 0;
    return sn_round_up(sn_weights_bytes((sennit_type)t->type, t->dims[0], t->dims[1]), 64);
}

static sennit_status make_arena(struct sn_loader *ld, struct sennit_error *err)
{
    size_t total = 0;
    if (*ld->arena)
        return SENNIT_OK;
    for (size_t i = 0; i < sn_gguf_n_tensors(ld->gguf); i++)
        if (sn_add_overflows(total, arena_share(sn_gguf_tensor_at(ld->gguf, i)), &total))
            return sn_fail(err, SENNIT_NOMEM, "the weights are larger than the address space");
    if (total == 0)
        return SENNIT_OK;
    *ld->arena = sn_calloc(ld->heap, SN_USE_WEIGHTS, 1, total);
    if (!*ld->arena)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the weights (%zu bytes)", total);
    *ld->arena_bytes = total;
    return SENNIT_OK;
}

sennit_status sn_loader_init(struct sn_loader *ld, struct sn_heap *heap, const struct sn_gguf *g, uint32_t n_threads,
                             void **arena, size_t *arena_bytes, struct sennit_error *err)
{
    *ld = (struct sn_loader){.heap = heap, .gguf = g, .arena = arena, .arena_bytes = arena_bytes};
    ld->taken = sn_calloc(heap, SN_USE_MISC, sn_gguf_n_tensors(g), sizeof *ld->taken);
    if (!ld->taken && sn_gguf_n_tensors(g) != 0)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the list of tensors");
    int n = n_threads ? (int)n_threads : sn_cpu_count();
    sennit_status st = sn_pool_create(&ld->threads, heap, n, false, err);
    if (st != SENNIT_OK)
        sn_loader_release(ld);
    return st;
}

void sn_loader_release(struct sn_loader *ld)
{
    if (!ld->heap)
        return;
    sn_pool_destroy(ld->threads);
    sn_free(ld->heap, SN_USE_MISC, ld->taken, sn_gguf_n_tensors(ld->gguf) * sizeof *ld->taken);
    *ld = (struct sn_loader){0};
}

bool sn_loader_has(const struct sn_loader *ld, const char *name) { return sn_gguf_tensor(ld->gguf, name) != NULL; }

/* "[576, 1536]" as the file has it, fastest dimension first. */
static const char *dims_text(const struct sn_gguf_tensor *t, char text[96])
{
    size_t used = 0;
    for (uint32_t i = 0; i < t->n_dims; i++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%llu", i ? ", " : "[", (unsigned long long)t->dims[i]);
    snprintf(text + used, 96 - used, "]");
    return text;
}

/* Finds a tensor of exactly [n_in, n_out] (n_out 1 for a vector) and marks it taken. */
static sennit_status take(struct sn_loader *ld, const char *name, size_t n_in, size_t n_out,
                          const struct sn_gguf_tensor **out, struct sennit_error *err)
{
    const struct sn_gguf_tensor *t = sn_gguf_tensor(ld->gguf, name);
    if (!t)
        return sn_fail(err, SENNIT_FORMAT, "tensor '%s' is missing from the file", name);
    if (t->dims[0] != n_in || t->dims[1] != n_out || t->dims[2] != 1 || t->dims[3] != 1) {
        char text[96];
        return sn_fail(err, SENNIT_FORMAT, "tensor '%s' has dimensions %s; the metadata asks for [%zu, %zu]", name,
                       dims_text(t, text), n_in, n_out);
    }
    for (size_t i = 0; i < sn_gguf_n_tensors(ld->gguf); i++)
        if (sn_gguf_tensor_at(ld->gguf, i) == t)
            ld->taken[i] = true;
    ld->n_parameters += (uint64_t)n_in * n_out;
    *out = t;
    return SENNIT_OK;
}

sennit_status sn_load_vector(struct sn_loader *ld, const char *name, size_t n, float **out, struct sennit_error *err)
{
    const struct sn_gguf_tensor *t;
    SN_TRY(take(ld, name, n, 1, &t, err));
    if (t->type != SENNIT_F32 && t->type != SENNIT_F16 && t->type != SENNIT_BF16)
        return sn_fail(err, SENNIT_UNSUPPORTED, "tensor '%s' is %s; a vector must be F32, F16 or BF16", name,
                       sennit_type_name((sennit_type)t->type));
    float *v = sn_alloc(ld->heap, SN_USE_WEIGHTS, n * sizeof *v);
    if (!v)
        return sn_fail(err, SENNIT_NOMEM, "no memory for tensor '%s' (%zu bytes)", name, n * sizeof *v);
    sn_dequantize_row(t->type, t->data, n, v);
    *out = v;
    return SENNIT_OK;
}

struct pack_job {
    struct sn_weights *w;
    const uint8_t *rows;
    size_t row_bytes;
};

static void pack_worker(void *ctx, int worker, int n_workers)
{
    const struct pack_job *job = ctx;
    size_t first, last;
    sn_split(job->w->n_panels, worker, n_workers, &first, &last);
    size_t from = first * SN_PANEL, to = sn_min_size(last * SN_PANEL, job->w->n_out);
    if (from < to)
        sn_weights_pack(job->w, job->rows + from * job->row_bytes, from, to - from);
}

sennit_status sn_load_matrix(struct sn_loader *ld, const char *name, size_t n_in, size_t n_out,
                             struct sn_weights *out, struct sennit_error *err)
{
    const struct sn_gguf_tensor *t;
    SN_TRY(take(ld, name, n_in, n_out, &t, err));
    sennit_type type = (sennit_type)t->type;
    if (!sn_weights_supported(type))
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "tensor '%s' is %s, which cannot be run; use a file in F32, F16, BF16, Q8_0, Q4_0 or Q4_1",
                       name, sennit_type_name(type));
    size_t bytes = sn_weights_bytes(type, n_in, n_out);
    if (bytes == 0)
        return sn_fail(err, SENNIT_FORMAT, "tensor '%s': rows of %zu values are not whole %s blocks", name, n_in,
                       sennit_type_name(type));
    struct sn_weights w = {.type = type, .n_in = n_in, .n_out = n_out, .n_panels = sn_div_up(n_out, SN_PANEL)};
    size_t share = arena_share(t);
    SN_TRY(make_arena(ld, err));
    if (share < bytes || share > *ld->arena_bytes - ld->arena_used)
        return sn_fail(err, SENNIT_FORMAT, "tensor '%s' must have two dimensions", name);
    w.data = (uint8_t *)*ld->arena + ld->arena_used;
    ld->arena_used += share;
    struct pack_job job = {.w = &w, .rows = t->data, .row_bytes = sn_row_bytes(t->type, n_in)};
    sn_pool_run(ld->threads, pack_worker, &job);
    sn_gguf_drop_pages(ld->gguf, t->data, t->n_bytes);
    *out = w;
    return SENNIT_OK;
}

sennit_status sn_loader_finish(const struct sn_loader *ld, struct sennit_error *err)
{
    for (size_t i = 0; i < sn_gguf_n_tensors(ld->gguf); i++) {
        if (ld->taken[i])
            continue;
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(ld->gguf, i);
        return sn_fail(
            err, SENNIT_UNSUPPORTED,
            "tensor '%.*s' has no place in this architecture's graph; the answer would be wrong without it",
            (int)t->name.len, t->name.data);
    }
    return SENNIT_OK;
}

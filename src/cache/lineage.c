#include "cache/lineage.h"

#include <assert.h>

#include "cache/family.h"

sennit_status sn_lineage_create(struct sn_lineage **out, struct sn_heap *heap, const char *signature,
                                struct sennit_error *err)
{
    size_t n = strlen(signature) + 1, n_bytes = sizeof(struct sn_lineage) + n;
    struct sn_lineage *lineage = sn_calloc(heap, SN_USE_MISC, 1, n_bytes);
    if (!lineage)
        return sn_fail(err, SENNIT_NOMEM, "no memory for what the caches of a layer share");
    lineage->heap = heap;
    lineage->n_refs = 1;
    lineage->n_bytes = n_bytes;
    memcpy(lineage->signature, signature, n);
    *out = lineage;
    return SENNIT_OK;
}

struct sn_lineage *sn_lineage_ref(struct sn_lineage *lineage)
{
    lineage->n_refs++;
    return lineage;
}

void sn_lineage_drop(struct sn_lineage *lineage)
{
    if (lineage && --lineage->n_refs == 0)
        sn_free(lineage->heap, SN_USE_MISC, lineage, lineage->n_bytes);
}

void sn_lineage_open(struct sn_lineage *lineage, const struct sennit_cache *cache)
{
    lineage->n_open++;
    if (lineage->n_claims == 0)
        lineage->writer = cache;
}

void sn_lineage_close(struct sn_lineage *lineage, const struct sennit_cache *cache)
{
    assert(lineage->n_open > 0);
    lineage->n_open--;
    if (lineage->writer == cache)
        lineage->writer = NULL;
}

static bool same_spans(const struct sn_cache_step *a, const struct sn_cache_step *b)
{
    if (a->n_spans != b->n_spans)
        return false;
    for (uint32_t i = 0; i < a->n_spans; i++)
        if (a->spans[i].row != b->spans[i].row || a->spans[i].pos != b->spans[i].pos ||
            a->spans[i].n_tokens != b->spans[i].n_tokens)
            return false;
    return true;
}

sennit_status sn_lineage_claim(struct sn_lineage *lineage, const struct sennit_cache *reader, const char *field,
                               struct sennit_error *err)
{
    if (!lineage->writer || lineage->n_open != 1)
        return sn_fail(err, SENNIT_STATE,
                       "append_begin: the layer that is to be read (%s) has %u steps open, not one; begin its step "
                       "first",
                       field, lineage->n_open);
    if (!same_spans(&lineage->writer->step, &reader->step))
        return sn_fail(err, SENNIT_STATE,
                       "append_begin: the spans differ from those of the layer that is to be read (%s)", field);
    if (lineage->writer->step.planned)
        return sn_fail(err, SENNIT_STATE,
                       "append_begin: the attention of the layer that is to be read (%s) is planned already: begin "
                       "all steps before the first plan",
                       field);
    lineage->n_claims++;
    return SENNIT_OK;
}

void sn_lineage_release(struct sn_lineage *lineage)
{
    assert(lineage->n_claims > 0);
    lineage->n_claims--;
}

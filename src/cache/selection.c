#include "cache/selection.h"

#include <assert.h>

sennit_status sn_selection_create(struct sn_selection **out, struct sn_heap *heap, struct sennit_error *err)
{
    struct sn_selection *s = sn_calloc(heap, SN_USE_MISC, 1, sizeof *s);
    if (!s)
        return sn_fail(err, SENNIT_NOMEM, "no memory for an indexer's selection");
    s->heap = heap;
    s->n_refs = 1;
    *out = s;
    return SENNIT_OK;
}

static void free_lists(struct sn_selection *s)
{
    sn_free(s->heap, SN_USE_SCRATCH, s->count, s->cap_tokens * sizeof *s->count);
    sn_free(s->heap, SN_USE_SCRATCH, s->list, s->cap_list * sizeof *s->list);
    s->count = s->list = NULL;
    s->cap_tokens = s->cap_list = 0;
}

void sn_selection_drop(struct sn_selection *s)
{
    if (!s || --s->n_refs > 0)
        return;
    free_lists(s);
    sn_free(s->heap, SN_USE_MISC, s, sizeof *s);
}

sennit_status sn_selection_reserve(struct sn_selection *s, const struct sn_cache_step *step, uint32_t top_k,
                                   struct sennit_error *err)
{
    size_t n_tokens = 0, longest = 0;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        n_tokens += step->spans[i].n_tokens;
        longest = sn_max_size(longest, step->spans[i].pos + step->spans[i].n_tokens);
    }
    size_t width = sn_min_size(top_k, longest), n_list = n_tokens * width;
    if (n_tokens > s->cap_tokens || n_list > s->cap_list) {
        uint32_t *count = sn_calloc(s->heap, SN_USE_SCRATCH, n_tokens, sizeof *count);
        uint32_t *list = sn_calloc(s->heap, SN_USE_SCRATCH, n_list, sizeof *list);
        if (!count || !list) {
            sn_free(s->heap, SN_USE_SCRATCH, count, n_tokens * sizeof *count);
            sn_free(s->heap, SN_USE_SCRATCH, list, n_list * sizeof *list);
            return sn_fail(err, SENNIT_NOMEM, "no memory for the selected keys of %zu tokens", n_tokens);
        }
        free_lists(s);
        s->count = count, s->cap_tokens = n_tokens;
        s->list = list, s->cap_list = n_list;
    }
    memset(s->count, 0, n_tokens * sizeof *s->count);
    s->width = (uint32_t)width;
    return SENNIT_OK;
}

/* Which of the step's tokens that is, counted span by span. */
static size_t token_of(const struct sn_cache_step *step, uint32_t row, uint64_t pos)
{
    size_t first = 0;
    uint32_t i = 0;
    for (; step->spans[i].row != row; i++)
        first += step->spans[i].n_tokens;
    return first + (size_t)(pos - step->spans[i].pos);
}

void sn_selection_store(struct sn_selection *s, const struct sennit_cache *source, uint32_t row, uint64_t pos,
                        const uint32_t *list, uint32_t n)
{
    if (source->lineage->writer != source || source->lineage->n_claims == 0)
        return;
    size_t token = token_of(&source->step, row, pos);
    assert(n <= s->width);
    memcpy(s->list + token * s->width, list, n * sizeof *list);
    s->count[token] = n;
}

uint32_t sn_selection_read(const struct sn_selection *s, const struct sennit_cache *reader, uint32_t row,
                           uint64_t pos, uint32_t *list)
{
    size_t token = token_of(&reader->step, row, pos);
    memcpy(list, s->list + token * s->width, s->count[token] * sizeof *list);
    return s->count[token];
}

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

void sn_selection_open(struct sn_selection *s, const struct sennit_cache *source)
{
    s->n_open++;
    if (s->n_claims == 0)
        s->writer = source;
}

void sn_selection_close(struct sn_selection *s, const struct sennit_cache *source)
{
    assert(s->n_open > 0);
    s->n_open--;
    if (s->writer == source)
        s->writer = NULL;
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

/* Lists of all tokens of the step, none of them filled in. */
static sennit_status reserve(struct sn_selection *s, const struct sn_cache_step *step, uint32_t top_k,
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

sennit_status sn_selection_claim(struct sn_selection *s, const struct sennit_cache *reader, uint32_t top_k,
                                 struct sennit_error *err)
{
    if (!s->writer || s->n_open != 1)
        return sn_fail(
            err, SENNIT_STATE,
            "append_begin: the layer whose selection is to be read (index.from) has %u steps open, not one; "
            "begin its step first",
            s->n_open);
    if (!same_spans(&s->writer->step, &reader->step))
        return sn_fail(err, SENNIT_STATE,
                       "append_begin: the spans differ from those of the layer whose selection is "
                       "to be read (index.from)");
    if (s->writer->step.planned)
        return sn_fail(
            err, SENNIT_STATE,
            "append_begin: the attention of the layer whose selection is to be read (index.from) is planned "
            "already: begin all steps before the first plan");
    if (s->n_claims == 0)
        SN_TRY(reserve(s, &reader->step, top_k, err));
    s->n_claims++;
    return SENNIT_OK;
}

void sn_selection_release(struct sn_selection *s)
{
    assert(s->n_claims > 0);
    s->n_claims--;
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
    if (s->writer != source || s->n_claims == 0)
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

/* A shared object of families from outside that are broken, each in one way that the conformance program names before
 * it runs anything. */
#include <string.h>

#include "sennit/conformance.h"
#include "support/raw_family.h"

typedef struct sennit_family_geometry geometry;

static size_t roomy_bytes(const geometry *g)
{
    return raw_family.page_bytes(g) + 4;
}

static void tail_beyond(const geometry *g, void *page, uint32_t from, uint8_t byte)
{
    raw_family.fill_tail(g, page, from, byte);
    memset((uint8_t *)page + raw_family.page_bytes(g), byte, 1);
}

static void tail_too_much(const geometry *g, void *page, uint32_t from, uint8_t byte)
{
    raw_family.fill_tail(g, page, from > 0 && from == g->page_tokens - 1 ? from - 1 : from, byte);
}

static void tail_zeros(const geometry *g, void *page, uint32_t from, uint8_t byte)
{
    (void)byte;
    raw_family.fill_tail(g, page, from, 0);
}

static void spans_gap(const geometry *g, struct sennit_family_span *out)
{
    raw_family.spans(g, out);
    out[0].n_bytes--;
}

static void spans_overlap(const geometry *g, struct sennit_family_span *out)
{
    raw_family.spans(g, out);
    out[0].n_bytes++;
}

static void store_adds(const geometry *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                       uint32_t n_heads, const float *x)
{
    uint8_t before = *(uint8_t *)page;
    raw_family.store(g, page, slot, role, first_head, n_heads, x);
    *(uint8_t *)page ^= (uint8_t)(before & 1);
}

static void store_next(const geometry *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                       uint32_t n_heads, const float *x)
{
    raw_family.store(g, page, (slot + 1) % g->page_tokens, role, first_head, n_heads, x);
}

static void store_one_head(const geometry *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                           uint32_t n_heads, const float *x)
{
    (void)first_head;
    raw_family.store(g, page, slot, role, 0, n_heads, x);
}

static void store_keys_only(const geometry *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                            uint32_t n_heads, const float *x)
{
    if (role == SENNIT_ROLE_KEY)
        raw_family.store(g, page, slot, role, first_head, n_heads, x);
}

/* Key j with the first number of the key before it. */
static void load_neighbour(const geometry *g, const struct sennit_family_chunk *chunk, float *k, float *v)
{
    raw_family.load_chunk(g, chunk, k, v);
    for (size_t j = SENNIT_FAMILY_CHUNK - 1; j > 0; j--)
        k[j * g->d_k] = k[(j - 1) * g->d_k];
}

/* ---- never reached --------------------------------------------------------------------------------------------- */

static void *twin_create(const geometry *g, uint32_t group)
{
    (void)g, (void)group;
    return NULL;
}

static void twin_release(void *twin)
{
    (void)twin;
}

static void twin_append(void *twin, const float *k, const float *v)
{
    (void)twin, (void)k, (void)v;
}

static void twin_cut(void *twin, uint64_t n_tokens)
{
    (void)twin, (void)n_tokens;
}

static double twin_attend(const void *twin, const struct sennit_twin_query *query, double *out)
{
    (void)twin, (void)query, (void)out;
    return 0;
}

static size_t token_bytes(const geometry *g)
{
    (void)g;
    return 1;
}

static void token(const geometry *g, const struct sennit_span_view *spans, uint32_t slot, uint8_t *out)
{
    (void)g, (void)spans, (void)slot, (void)out;
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

enum { ROOM = 16 };
static struct sennit_family families[ROOM];
static struct sennit_conformance entries[ROOM];
static const struct sennit_conformance *list[ROOM + 1];
static size_t n;

static struct sennit_conformance *add(const char *name)
{
    families[n] = raw_family;
    families[n].name = name;
    entries[n] = (struct sennit_conformance){.struct_bytes = sizeof entries[n],
                                             .family = &families[n],
                                             .d_multiple = 4,
                                             .create = twin_create,
                                             .release = twin_release,
                                             .append = twin_append,
                                             .cut = twin_cut,
                                             .attend = twin_attend,
                                             .token_bytes = token_bytes,
                                             .token = token};
    list[n] = &entries[n];
    return &entries[n++];
}

#define BROKEN(its_name, slot, function)                                                                             \
    add(its_name);                                                                                                   \
    families[n - 1].slot = function

const struct sennit_conformance *const *sennit_conformance_families(void)
{
    n = 0;
    BROKEN("roomy", page_bytes, roomy_bytes);
    BROKEN("tail-beyond", fill_tail, tail_beyond);
    BROKEN("tail-too-much", fill_tail, tail_too_much);
    BROKEN("tail-zeros", fill_tail, tail_zeros);
    BROKEN("spans-gap", spans, spans_gap);
    BROKEN("spans-overlap", spans, spans_overlap);
    BROKEN("store-adds", store, store_adds);
    BROKEN("store-next", store, store_next);
    BROKEN("store-one-head", store, store_one_head);
    BROKEN("store-keys-only", store, store_keys_only);
    BROKEN("load-neighbour", load_chunk, load_neighbour);
    BROKEN("no-load", load_chunk, NULL);
    add("no-attend")->attend = NULL;
    add("no-twin"); /* create gives NULL */
    return list;
}

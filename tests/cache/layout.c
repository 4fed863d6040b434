/* What an outsider's functions do to the bytes of one page. */
#include <stdlib.h>

#include "cache/outside.h"

enum { GUARD = 256, POSITIONS = 64 };

/* A page between guards. Bytes that fill leaves at both 0x00 and 0xFF were not touched. */
struct sheet {
    const struct sennit_family *f;
    const struct sennit_family_geometry *g;
    size_t n_bytes;
    uint8_t *low, *high; /* pages that were 0x00 and 0xFF; both between guards */
    float *x;            /* one token of one role */
    struct rng rng;
};

static uint8_t *guarded(const struct sheet *s, uint8_t byte)
{
    size_t room = (s->n_bytes + 63) / 64 * 64 + 2 * GUARD;
    uint8_t *data = must(aligned_alloc(64, room));
    memset(data, byte, room);
    return data + GUARD;
}

static void refill(struct sheet *s)
{
    memset(s->low - GUARD, 0x00, s->n_bytes + 2 * GUARD);
    memset(s->high - GUARD, 0xFF, s->n_bytes + 2 * GUARD);
}

static bool touched(const struct sheet *s, size_t i)
{
    return s->low[i] != 0x00 || s->high[i] != 0xFF;
}

static void check_guards(const struct sheet *s, const char *who)
{
    for (size_t i = 0; i < GUARD; i++) {
        bool before = s->low[-1 - (ptrdiff_t)i] != 0 || s->high[-1 - (ptrdiff_t)i] != 0xFF;
        bool after = s->low[s->n_bytes + i] != 0 || s->high[s->n_bytes + i] != 0xFF;
        if (before || after)
            die("family '%s': %s writes outside the page of %zu bytes (%u positions)", s->f->name, who, s->n_bytes,
                s->g->page_tokens);
    }
}

/* ---- fill_tail and spans -------------------------------------------------------------------------------------- */

/* owner[i]: the position that byte i belongs to. */
static void find_owners(struct sheet *s, uint8_t *owner)
{
    uint32_t p = s->g->page_tokens;
    memset(owner, POSITIONS, s->n_bytes);
    for (uint32_t from = 0; from < p; from++) {
        refill(s);
        s->f->fill_tail(s->g, s->low, from, 0xA5);
        s->f->fill_tail(s->g, s->high, from, 0xA5);
        check_guards(s, "fill_tail");
        for (size_t i = 0; i < s->n_bytes; i++) {
            bool mine = touched(s, i);
            if (mine && (s->low[i] != 0xA5 || s->high[i] != 0xA5))
                die("family '%s': fill_tail does not set byte %zu to the byte it is given", s->f->name, i);
            if (!mine && from == 0)
                die("family '%s': fill_tail from position 0 leaves byte %zu of %zu alone: bytes without a position "
                    "must not be in a page",
                    s->f->name, i, s->n_bytes);
            if (mine && from > 0 && owner[i] != from - 1)
                die("family '%s': fill_tail from position %u sets byte %zu, and from position %u does not",
                    s->f->name, from, i, from - 1);
            if (mine)
                owner[i] = (uint8_t)from;
        }
    }
}

static void check_spans(const struct sheet *s)
{
    struct sennit_family_span spans[SENNIT_FAMILY_MAX_SPANS] = {0};
    uint8_t *in = must(calloc(s->n_bytes, 1));
    s->f->spans(s->g, spans);
    for (uint32_t k = 0; k < s->f->n_spans; k++)
        for (size_t i = 0; i < spans[k].n_bytes; i++)
            if (in[spans[k].offset + i]++)
                die("family '%s': byte %zu of a page is in two spans", s->f->name, spans[k].offset + i);
    for (size_t i = 0; i < s->n_bytes; i++)
        if (!in[i])
            die("family '%s': byte %zu of a page's %zu is in no span", s->f->name, i, s->n_bytes);
    free(in);
}

/* ---- store ---------------------------------------------------------------------------------------------------- */

static void store_one(struct sheet *s, const uint8_t *owner, uint8_t *written, uint32_t slot, bool key, uint32_t head)
{
    const char *role = key ? "key" : "value";
    uint32_t d = key ? s->g->d_k : s->g->d_v;
    for (uint32_t i = 0; i < d; i++)
        s->x[i] = (float)((int32_t)rng_below(&s->rng, 2000) - 1000) * 0.01f;
    refill(s);
    s->f->store(s->g, s->low, slot, key ? SENNIT_ROLE_KEY : SENNIT_ROLE_VALUE, head, 1, s->x);
    s->f->store(s->g, s->high, slot, key ? SENNIT_ROLE_KEY : SENNIT_ROLE_VALUE, head, 1, s->x);
    check_guards(s, "store");
    for (size_t i = 0; i < s->n_bytes; i++) {
        if (!touched(s, i))
            continue;
        if (s->low[i] != s->high[i])
            die("family '%s': what store makes of a %s in byte %zu depends on what was there before", s->f->name,
                role, i);
        if (owner[i] != slot)
            die("family '%s': store of a %s at position %u writes byte %zu, which fill_tail counts to position %u",
                s->f->name, role, slot, i, owner[i]);
        if (written[i]++)
            die("family '%s': byte %zu of position %u is written by two stores (last: %s of head %u)", s->f->name, i,
                slot, role, head);
    }
}

static void check_store(struct sheet *s, const uint8_t *owner)
{
    uint8_t *written = must(calloc(s->n_bytes, 1));
    for (uint32_t slot = 0; slot < s->g->page_tokens; slot++)
        for (uint32_t head = 0; head < s->g->n_kv_heads; head++) {
            store_one(s, owner, written, slot, true, head);
            store_one(s, owner, written, slot, false, head);
        }
    for (size_t i = 0; i < s->n_bytes; i++)
        if (!written[i])
            die("family '%s': no store writes byte %zu of position %u", s->f->name, i, owner[i]);
    free(written);
}

/* ---- load_chunk ---------------------------------------------------------------------------------------------- */

struct loaded {
    float *k, *v;
};

static struct loaded load(const struct sheet *s, const void *const *pages, uint64_t wanted, uint32_t head)
{
    struct loaded l = {must(aligned_alloc(64, SENNIT_FAMILY_CHUNK * sizeof(float) * s->g->d_k)),
                       must(aligned_alloc(64, SENNIT_FAMILY_CHUNK * sizeof(float) * s->g->d_v))};
    struct sennit_family_chunk chunk = {.pages = pages, .wanted = wanted, .kv_head = head};
    memset(l.k, 0x11, SENNIT_FAMILY_CHUNK * sizeof(float) * s->g->d_k);
    memset(l.v, 0x11, SENNIT_FAMILY_CHUNK * sizeof(float) * s->g->d_v);
    s->f->load_chunk(s->g, &chunk, l.k, l.v);
    return l;
}

/* Any bytes load, and a key's numbers come from its own position: others are garbage of another kind, or not
 * there. */
static void check_load(struct sheet *s, const uint8_t *owner)
{
    uint32_t p = s->g->page_tokens, lane = rng_below(&s->rng, SENNIT_FAMILY_CHUNK), head;
    const void *all[SENNIT_FAMILY_CHUNK], *one[SENNIT_FAMILY_CHUNK] = {NULL};
    head = rng_below(&s->rng, s->g->n_kv_heads);
    for (size_t i = 0; i < s->n_bytes; i++) {
        s->low[i] = (uint8_t)rng_next(&s->rng);
        s->high[i] = owner[i] == lane % p ? s->low[i] : (uint8_t)~s->low[i];
    }
    for (uint32_t i = 0; i < SENNIT_FAMILY_CHUNK / p; i++)
        all[i] = s->low;
    one[lane / p] = s->high;
    struct loaded a = load(s, all, UINT64_MAX, head), b = load(s, one, UINT64_C(1) << lane, head);
    if (memcmp(a.k + (size_t)lane * s->g->d_k, b.k + (size_t)lane * s->g->d_k, sizeof(float) * s->g->d_k) != 0 ||
        memcmp(a.v + (size_t)lane * s->g->d_v, b.v + (size_t)lane * s->g->d_v, sizeof(float) * s->g->d_v) != 0)
        die("family '%s': what load_chunk gives for key %u depends on other positions, or on which are wanted",
            s->f->name, lane);
    free(a.k);
    free(a.v);
    free(b.k);
    free(b.v);
}

void check_layout(const struct sennit_family *family, const struct sennit_family_geometry *g, uint64_t seed)
{
    struct sheet s = {.f = family, .g = g, .n_bytes = family->page_bytes(g), .rng = {seed}};
    uint8_t *owner = must(malloc(s.n_bytes));
    s.low = guarded(&s, 0);
    s.high = guarded(&s, 0);
    s.x = must(malloc(((size_t)g->d_k + g->d_v) * sizeof *s.x));
    find_owners(&s, owner);
    check_spans(&s);
    check_store(&s, owner);
    for (int i = 0; i < 8; i++)
        check_load(&s, owner);
    free(s.low - GUARD);
    free(s.high - GUARD);
    free(s.x);
    free(owner);
}

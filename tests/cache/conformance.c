/* conformance --family F --ops N --seed S [--load OBJECT] [--type f32|f16|bf16] [--hostile]
 * [--wrong N | --fault N] [--verbose];
 * installed as sennit-conformance.
 *
 * Random operations over random geometries. After each one the accounting equals the allocator's;
 * every output of every append equals the row's solo replay to the bit (another pool, another
 * instruction set, other chunks and orders, where possible another family) and the textbook twin
 * within its bound; stored state equals solo replay's, one row per operation and all rows every 64.
 * Page sizes are drawn too, another one for the row alone. --load: the family is one from outside the library
 * (sennit/conformance.h). --hostile: pages of 1, and every write and trim moves what
 * it touches. --wrong N: the family's wrong variant N, which the twin alone must catch. --fault N: its
 * faulty variant N, which any check may catch. A refused call leaves everything as it was. A failure prints
 * what to run again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cache/outside.h"
#include "cache/world.h"

static struct mcache *pick(struct world *w)
{
    if (w->n_serial == 0 || (w->main.n > 0 && rng_chance(&w->rng, 70)))
        return &w->main;
    return &w->serial[rng_below(&w->rng, w->n_serial)];
}

static void add_serial(struct world *w, struct sennit_cache *c, struct mrow *row)
{
    CHECK(w->n_serial < MAX_SERIAL);
    w->serial[w->n_serial++] = (struct mcache){.c = c, .rows = {row}, .n = 1};
}

static void drop_serial(struct world *w, uint32_t i)
{
    mcache_dispose(&w->serial[i]);
    w->serial[i] = w->serial[--w->n_serial];
}

/* ---- operations
 * ---------------------------------------------------------------------------------------------- */

/* Tokens for one row of a step: mostly few, sometimes a chunk, never beyond what the row may hold.
 */
static uint32_t random_span(struct world *w, const struct mcache *m, uint32_t r)
{
    const struct mrow *row = m->rows[r];
    uint64_t limit = span_limit(m->c, r);
    uint32_t kind = rng_below(&w->rng, 100), n;
    if (w->long_rows && kind < 20)
        n = 500 + rng_below(&w->rng, 3000);
    else if (w->segmented && kind < 10)
        n = 100 + rng_below(&w->rng, 300);
    else
        n = kind < 60 ? 1 : kind < 90 ? 1 + rng_below(&w->rng, 5) : 1 + rng_below(&w->rng, 130);
    uint64_t max = w->g.config.max_tokens ? w->g.config.max_tokens : UINT64_MAX, room = max - row->n;
    if (bounded_spans(w) && n > w->g.config.max_span)
        n = w->g.config.max_span;
    if (row->n + n > w->max_len)
        n = row->n < w->max_len ? (uint32_t)(w->max_len - row->n) : 0;
    if (limit <= w->g.config.max_span && rng_chance(&w->rng, 10)) /* right up to a change of precision */
        n = (uint32_t)limit;
    room = room < limit ? room : limit;
    return n < room ? n : (uint32_t)room;
}

static bool op_append(struct world *w)
{
    struct mcache *m = pick(w);
    uint32_t n[MAX_ROWS] = {0}, total = 0, most = 0;
    bool all = rng_chance(&w->rng, 60);
    for (uint32_t r = 0; r < m->n; r++) {
        n[r] = all || rng_chance(&w->rng, 50) ? random_span(w, m, r) : 0;
        total += n[r];
        most = n[r] > most ? n[r] : most;
    }
    if (total == 0)
        return false;
    bool attention =
        w->long_rows ? most <= 4 && rng_chance(&w->rng, 30) : rng_chance(&w->rng, w->family->slow ? 60 : 92);
    mcache_append(w, m, n, attention, rng_chance(&w->rng, 6));
    return true;
}

static bool op_new(struct world *w)
{
    if (w->n_serial == MAX_SERIAL)
        return false;
    struct sennit_cache *c = new_cache(w, w->pool, &w->g.config, 1);
    add_serial(w, c, mrow_new(w));
    return true;
}

/* The running rows and some serial caches into a fresh layout; sources stay as they were, then go.
 */
static bool op_merge(struct world *w)
{
    const struct sennit_cache *sources[MAX_SERIAL + 1];
    uint32_t join = w->n_serial, n = 0;
    if (join > MAX_ROWS - w->main.n)
        join = MAX_ROWS - w->main.n;
    join = join ? 1 + rng_below(&w->rng, join) : 0;
    if (join == 0 && w->main.n == 0)
        return false;
    struct mcache fresh = {0};
    OK(sennit_cache_make_empty_batch(w->main.c, &fresh.c, err));
    if (w->main.n > 0 || rng_chance(&w->rng, 50))
        sources[n++] = w->main.c;
    for (uint32_t i = 0; i < join; i++)
        sources[n++] = w->serial[i].c;
    OK(sennit_cache_merge_rows(fresh.c, sources, n, err));
    CHECK(strcmp(sennit_cache_signature(fresh.c), sennit_cache_signature(w->main.c)) == 0);
    for (uint32_t i = 0; i < w->main.n; i++)
        fresh.rows[fresh.n++] = w->main.rows[i];
    for (uint32_t i = 0; i < join; i++)
        fresh.rows[fresh.n++] = w->serial[i].rows[0];
    mcache_align(w, &fresh);
    check_rows(w, &fresh);
    w->main.n = 0;
    mcache_dispose(&w->main);
    for (uint32_t i = join; i-- > 0;) {
        w->serial[i].n = 0; /* its row has moved */
        drop_serial(w, i);
    }
    w->main = fresh;
    return true;
}

static bool op_filter(struct world *w)
{
    uint32_t keep[MAX_ROWS], n = w->main.n;
    struct mrow *rows[MAX_ROWS];
    uint64_t pad[MAX_ROWS];
    for (uint32_t i = 0; i < n; i++)
        keep[i] = i;
    rng_shuffle(&w->rng, keep, n);
    uint32_t n_keep = rng_chance(&w->rng, 40) ? n : rng_below(&w->rng, n + 1);
    OK(sennit_cache_filter_rows(w->main.c, keep, n_keep, err));
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = w->main.rows[i];
        pad[i] = w->main.pad[i];
    }
    for (uint32_t i = 0; i < n; i++)
        if (i < n_keep) {
            w->main.rows[i] = rows[keep[i]];
            w->main.pad[i] = pad[keep[i]];
        } else {
            mrow_free(rows[keep[i]]);
        }
    w->main.n = n_keep;
    mcache_drop_padding(&w->main);
    return true;
}

static bool op_extract(struct world *w)
{
    if (w->n_serial == MAX_SERIAL || w->main.n == 0)
        return false;
    uint32_t row = rng_below(&w->rng, w->main.n);
    struct sennit_cache *c;
    if (rng_chance(&w->rng, 50))
        OK(sennit_cache_extract_row(w->main.c, row, &c, err));
    else
        OK(sennit_cache_clone(w->main.c, row, &c, err));
    add_serial(w, c, mrow_copy(w->main.rows[row]));
    check_row(w, &w->serial[w->n_serial - 1], 0);
    return true;
}

/* A prefix is published as a clone that is trimmed to it; what can_publish_row says of a length, trim does. */
static bool op_publish(struct world *w)
{
    struct mcache *m = pick(w);
    if (w->n_serial == MAX_SERIAL || m->n == 0)
        return false;
    uint32_t row = rng_below(&w->rng, m->n);
    struct mrow *copy = mrow_copy(m->rows[row]);
    uint64_t n = rng_chance(&w->rng, 15) ? copy->n : rng_below(&w->rng, (uint32_t)copy->n + 1);
    bool able = sennit_cache_can_publish_row(m->c, row, n);
    struct sennit_cache *c;
    OK(sennit_cache_clone(m->c, row, &c, err));
    if (n == copy->n) {
        CHECK(able);
    } else if (able) {
        OK(sennit_cache_trim(c, copy->n - n, false, err));
        mrow_cut(copy, n);
    } else {
        sennit_status status = sennit_cache_is_trimmable(c) ? SENNIT_RANGE : SENNIT_UNSUPPORTED;
        uint64_t before = cache_fingerprint(c);
        REFUSED(status, sennit_cache_trim(c, copy->n - n, false, err));
        CHECK(cache_fingerprint(c) == before);
    }
    add_serial(w, c, copy);
    check_row(w, &w->serial[w->n_serial - 1], 0);
    return true;
}

static bool op_dispose(struct world *w)
{
    if (w->n_serial == 0)
        return false;
    drop_serial(w, rng_below(&w->rng, w->n_serial));
    return true;
}

/* One token further than the last append is there to be dropped. */
static void check_bypass(struct mcache *m)
{
    uint64_t shortest = UINT64_MAX, reach = UINT64_MAX;
    for (uint32_t r = 0; r < m->n; r++) {
        shortest = m->rows[r]->n < shortest ? m->rows[r]->n : shortest;
        reach = m->rows[r]->n_last < reach ? m->rows[r]->n_last : reach;
    }
    if (reach < shortest)
        REFUSED(SENNIT_RANGE, sennit_cache_trim(m->c, reach + 1, true, err));
}

static bool op_trim(struct world *w)
{
    struct mcache *m = pick(w);
    uint64_t shortest = UINT64_MAX, reach = UINT64_MAX;
    for (uint32_t r = 0; r < m->n; r++) {
        shortest = m->rows[r]->n < shortest ? m->rows[r]->n : shortest;
        reach = m->rows[r]->n_last < reach ? m->rows[r]->n_last : reach;
    }
    if (m->n == 0 || shortest == 0)
        return false;
    if (!sennit_cache_is_trimmable(m->c)) {
        uint64_t before = cache_fingerprint(m->c);
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_trim(m->c, 1, false, err));
        CHECK(cache_fingerprint(m->c) == before);
        return true;
    }
    bool bypass = rng_chance(&w->rng, 30);
    uint64_t most = rng_chance(&w->rng, 20) ? shortest : shortest < 70 ? shortest : 70;
    uint64_t n = rng_below(&w->rng, (uint32_t)most + 1);
    bool gone = false;
    for (uint32_t r = 0; r < m->n; r++)
        gone |= n > 0 && (m->rows[r]->n - n < retention_of(w->family, &w->g, m->rows[r]->high).trim_floor ||
                          m->rows[r]->n - n < sennit_cache_minimum_reusable_offset(m->c, r));
    if (gone || (bypass && n > reach)) {
        uint64_t before = cache_fingerprint(m->c);
        REFUSED(SENNIT_RANGE, sennit_cache_trim(m->c, n, bypass, err));
        CHECK(cache_fingerprint(m->c) == before);
        return true;
    }
    OK(sennit_cache_trim(m->c, n, bypass, err));
    for (uint32_t r = 0; r < m->n; r++)
        mrow_cut(m->rows[r], m->rows[r]->n - n);
    mcache_shortened(m);
    check_bypass(m);
    return true;
}

/* While a round is open everything but append, attend, commit, rollback and dispose is refused. */
static void round_misuse(struct world *w, struct mcache *m, const uint64_t *window)
{
    struct sennit_cache *out = NULL;
    struct sennit_donor *donor = NULL;
    struct sennit_state state;
    uint64_t bad[MAX_ROWS], before = cache_fingerprint(m->c);
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_begin(m->c, err));
    REFUSED(SENNIT_STATE, sennit_cache_trim(m->c, 0, false, err));
    REFUSED(SENNIT_STATE, sennit_cache_filter_rows(m->c, NULL, 0, err));
    REFUSED(SENNIT_STATE, sennit_cache_extract_row(m->c, 0, &out, err));
    REFUSED(SENNIT_STATE, sennit_cache_capture_donor_rows(m->c, &donor, err));
    REFUSED(SENNIT_STATE, sennit_cache_state(m->c, &state, err));
    REFUSED(SENNIT_STATE, sennit_cache_begin_prefill(m->c, err));
    for (uint32_t r = 0; r < m->n; r++)
        bad[r] = window[r];
    bad[rng_below(&w->rng, m->n)]++;
    for (uint32_t r = 0; r < m->n; r++)
        if (bad[r] > window[r]) {
            REFUSED(SENNIT_RANGE, sennit_cache_spec_round_rollback(m->c, bad, err));
            break;
        }
    CHECK(!out && !donor && cache_fingerprint(m->c) == before);
}

/* A row that has come up to its change of precision within the round stays there. */
static void round_boundary(struct world *w, struct mcache *m, const uint64_t *window)
{
    for (uint32_t r = 0; r < m->n; r++) {
        if (window[r] == 0 || !is_due(w, m, r) || w->wrong)
            continue;
        struct sennit_span s = {.row = r, .pos = m->rows[r]->n, .n_tokens = 1};
        CHECK(span_limit(m->c, r) == 0);
        REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, &s, 1, err));
    }
}

static bool op_round(struct world *w)
{
    struct mcache *m = pick(w);
    uint64_t window[MAX_ROWS] = {0}, start[MAX_ROWS], keep[MAX_ROWS];
    uint32_t depth = w->g.config.round_depth;
    if (m->n == 0)
        return false;
    OK(sennit_cache_spec_round_begin(m->c, err));
    for (uint32_t r = 0; r < m->n; r++)
        start[r] = m->rows[r]->n;
    uint32_t steps = rng_below(&w->rng, 4);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t n[MAX_ROWS] = {0}, total = 0;
        for (uint32_t r = 0; r < m->n; r++) {
            uint64_t room = w->g.config.max_tokens ? w->g.config.max_tokens - m->rows[r]->n : depth;
            uint64_t most = depth - window[r] < room ? depth - window[r] : room, limit = span_limit(m->c, r);
            most = most < limit ? most : limit;
            n[r] = rng_below(&w->rng, (uint32_t)most + 1);
            if (most == limit && rng_chance(&w->rng, 30)) /* right up to it */
                n[r] = (uint32_t)most;
            total += n[r];
        }
        bool abort = rng_chance(&w->rng, 10);
        if (total > 0)
            mcache_append(w, m, n, !w->long_rows || rng_chance(&w->rng, 10), abort);
        for (uint32_t r = 0; r < m->n && !abort; r++)
            window[r] += n[r];
        round_boundary(w, m, window);
    }
    check_within_projection(w, m, true);
    if (rng_chance(&w->rng, 30))
        round_misuse(w, m, window);
    bool commit = rng_chance(&w->rng, 25), reject = rng_chance(&w->rng, 20);
    for (uint32_t r = 0; r < m->n; r++)
        keep[r] = commit ? window[r] : reject ? 0 : rng_below(&w->rng, (uint32_t)window[r] + 1);
    if (commit)
        OK(sennit_cache_spec_round_commit(m->c, err));
    else
        OK(sennit_cache_spec_round_rollback(m->c, keep, err));
    for (uint32_t r = 0; r < m->n; r++)
        mrow_cut(m->rows[r], start[r] + keep[r]);
    mcache_shortened(m);
    mcache_settled(m);
    check_rows(w, m);
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_commit(m->c, err));
    return true;
}

static bool op_donor(struct world *w)
{
    struct mdonor *d = &w->donors[rng_below(&w->rng, MAX_DONORS)];
    if (d->rows || d->view) {
        check_donor(w, d);
        if (rng_chance(&w->rng, 50))
            donor_free(d);
        return true;
    }
    struct mcache *m = pick(w);
    if (m->c->ops->no_planes) {
        uint64_t before = cache_fingerprint(m->c);
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(m->c, &d->rows, err));
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(m->c, &d->view, err));
        CHECK(cache_fingerprint(m->c) == before && !d->rows && !d->view);
        return true;
    }
    if (!m->c->ops->donor_attend || rng_chance(&w->rng, 50))
        OK(sennit_cache_capture_donor_rows(m->c, &d->rows, err));
    else
        OK(sennit_cache_capture_donor_attention(m->c, &d->view, err));
    m->stamp = m->stamp ? m->stamp : ++w->n_stamps;
    d->stamp = m->stamp;
    d->n = m->n;
    for (uint32_t r = 0; r < m->n; r++)
        d->copy[r] = mrow_copy(m->rows[r]);
    return true;
}

/* A record depends on the row's tokens alone, to the byte, unwritten storage included. */
static void check_record(const struct msaved *s, const struct sennit_cache *solo)
{
    struct memory alone;
    struct sennit_stream writer = memory_writer(&alone);
    OK(sennit_cache_save(solo, 0, &writer, err));
    CHECK(alone.n_bytes == s->stream.n_bytes && memcmp(alone.data, s->stream.data, alone.n_bytes) == 0);
    free(alone.data);
}

/* One bit of byte `at` is turned; bit 8: the record ends there. */
static void refuse_damaged(struct world *w, struct msaved *s, size_t at, uint32_t bit)
{
    struct sennit_error err = {0};
    struct sennit_cache *c = NULL;
    struct sennit_stream reader = memory_reader(&s->stream);
    uint64_t bytes = sennit_pool_bytes(w->pool);
    uint8_t old = s->stream.data[at];
    if (bit == 8)
        s->stream.fail_at = at;
    else
        s->stream.data[at] ^= (uint8_t)(1u << bit);
    sennit_status status = sennit_cache_load(w->main.c, &reader, &c, &err);
    CHECK(status == SENNIT_FORMAT || (bit < 8 && status == SENNIT_INVALID));
    CHECK(!c && sennit_pool_bytes(w->pool) == bytes);
    s->stream.data[at] = old;
}

/* A record survives its row; a damaged or shortened one is refused. */
static bool op_save(struct world *w)
{
    struct msaved *s = &w->saved[rng_below(&w->rng, MAX_SAVED)];
    struct mcache *m = pick(w);
    if (m->n == 0)
        return false;
    uint32_t row = rng_below(&w->rng, m->n);
    free(s->stream.data);
    mrow_free(s->copy);
    struct sennit_stream writer = memory_writer(&s->stream);
    OK(sennit_cache_save(m->c, row, &writer, err));
    CHECK(writer.n_bytes == s->stream.n_bytes && writer.hash == NULL);
    s->copy = mrow_copy(m->rows[row]);
    s->copy->n_last = 0;
    const struct sennit_cache *solo = mrow_solo(w, m->rows[row]);
    bool same = strcmp(sennit_cache_signature(m->c), sennit_cache_signature(solo)) == 0;
    match_precision(w, m->c, row, m->rows[row]);
    /* A trimmed row has let go of more than one that was only ever fed its tokens. */
    if (same && row_gone(m->c, row) == row_gone(solo, 0))
        check_record(s, solo);
    uint64_t draw =
        mix64(s->stream.n_bytes + s->copy->n); /* beside the world's own numbers, which stay as they are */
    refuse_damaged(w, s, (size_t)(draw >> 3) % s->stream.n_bytes, (uint32_t)(draw & 7));
    return true;
}

static bool op_load(struct world *w)
{
    struct msaved *s = &w->saved[rng_below(&w->rng, MAX_SAVED)];
    if (!s->copy)
        return op_save(w);
    if (w->n_serial == MAX_SERIAL)
        return false;
    if (rng_chance(&w->rng, 40)) {
        size_t at = rng_below(&w->rng, (uint32_t)s->stream.n_bytes);
        bool cut = rng_chance(&w->rng, 50);
        refuse_damaged(w, s, at, cut ? 8 : rng_below(&w->rng, 8));
        return true;
    }
    struct sennit_cache *c = NULL;
    struct sennit_stream reader = memory_reader(&s->stream);
    OK(sennit_cache_load(w->main.c, &reader, &c, err));
    add_serial(w, c, mrow_copy(s->copy));
    check_row(w, &w->serial[w->n_serial - 1], 0);
    return true;
}

/* While the change of precision is suspended, a row that is due gets nothing, and the others what they are given. */
static void prefill_step(struct world *w, struct mcache *m)
{
    uint32_t n[MAX_ROWS] = {0}, total = 0;
    for (uint32_t r = 0; r < m->n; r++) {
        bool due = is_due(w, m, r);
        CHECK(!due || w->wrong || span_limit(m->c, r) == 0);
        n[r] = rng_chance(&w->rng, 70) ? random_span(w, m, r) : 0;
        if (rng_chance(&w->rng, 30) && span_limit(m->c, r) < w->g.config.max_span) /* right up to it */
            n[r] = (uint32_t)span_limit(m->c, r);
        uint64_t max = w->g.config.max_tokens;
        n[r] = max && n[r] > max - m->rows[r]->n ? (uint32_t)(max - m->rows[r]->n) : n[r];
        total += n[r];
        struct sennit_span s = {.row = r, .pos = m->rows[r]->n, .n_tokens = 1};
        uint64_t before = due ? cache_fingerprint(m->c) : 0, bytes = sennit_pool_bytes(w->pool);
        if (!due || w->wrong)
            continue;
        REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, &s, 1, err));
        CHECK(cache_fingerprint(m->c) == before && sennit_pool_bytes(w->pool) == bytes);
    }
    if (total > 0)
        mcache_append(w, m, n, !w->long_rows, rng_chance(&w->rng, 10));
}

/* Shared prefill: begin, steps, commit of some rows between them, end. */
static bool op_prefill(struct world *w)
{
    struct mcache *m = pick(w);
    uint32_t rows[MAX_ROWS], n_steps = w->family->changes_precision ? rng_below(&w->rng, 4) : 0;
    for (uint32_t r = 0; r < m->n; r++)
        rows[r] = r;
    REFUSED(SENNIT_STATE, sennit_cache_commit_prefill(m->c, rows, m->n, err));
    REFUSED(SENNIT_STATE, sennit_cache_end_prefill(m->c, err));
    OK(sennit_cache_begin_prefill(m->c, err));
    REFUSED(SENNIT_STATE, sennit_cache_begin_prefill(m->c, err));
    for (uint32_t i = 0; i <= n_steps; i++) {
        bool due[MAX_ROWS], listed[MAX_ROWS] = {0};
        if (i > 0)
            prefill_step(w, m);
        rng_shuffle(&w->rng, rows, m->n);
        uint32_t n = rng_below(&w->rng, m->n + 1);
        for (uint32_t r = 0; r < m->n; r++)
            due[r] = is_due(w, m, r);
        OK(sennit_cache_commit_prefill(m->c, rows, n, err));
        for (uint32_t k = 0; k < n; k++)
            listed[rows[k]] = true;
        for (uint32_t r = 0; r < m->n; r++) {
            CHECK(w->wrong || is_due(w, m, r) == (due[r] && !listed[r]));
            check_row(w, m, r);
        }
    }
    OK(sennit_cache_end_prefill(m->c, err));
    return true;
}

static void misuse_append(struct world *w, struct mcache *m)
{
    uint32_t heads = n_heads_of(&w->g);
    uint64_t at = sennit_cache_row_offset(m->c, 0);
    struct sennit_span s[2] = {{.row = 0, .pos = at, .n_tokens = 1}, {.row = 0, .pos = at, .n_tokens = 1}};
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(m->c, s, 0, heads, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(m->c, s, 1, 0, err));
    if (at < sennit_cache_max_tokens(m->c))
        REFUSED(SENNIT_INVALID, sennit_cache_append_begin(m->c, s, 2, heads, err));
    s[0].pos++;
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(m->c, s, 1, heads, err));
    s[0] = (struct sennit_span){.row = m->n, .n_tokens = 1};
    REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, s, 1, err));
    s[0] = (struct sennit_span){.row = 0, .pos = at, .n_tokens = 0};
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(m->c, s, 1, heads, err));
    if (bounded_spans(w)) {
        uint32_t depth = w->g.config.round_depth, span = w->g.config.max_span;
        s[0].n_tokens = (span > depth ? span : depth) + 1;
        REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, s, 1, err));
    }
    if (span_limit(m->c, 0) < UINT32_MAX) {
        s[0].n_tokens = (uint32_t)span_limit(m->c, 0) + 1;
        REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, s, 1, err));
    }
    if (w->g.config.max_tokens && w->g.config.max_tokens - at < UINT32_MAX) {
        s[0].n_tokens = (uint32_t)(w->g.config.max_tokens - at) + 1;
        REFUSED(SENNIT_RANGE, begin_step(m->c, &w->g, s, 1, err));
    }
}

static void misuse_in_step(struct world *w, struct mcache *m)
{
    struct sennit_cache *out = NULL;
    struct sennit_span s = {.row = 0, .pos = sennit_cache_row_offset(m->c, 0), .n_tokens = 1};
    if ((w->g.config.max_tokens && s.pos == w->g.config.max_tokens) || is_due(w, m, 0) ||
        (w->wrong && w->family->changes_precision))
        return;
    OK(begin_step(m->c, &w->g, &s, 1, err));
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(m->c, &s, 1, n_heads_of(&w->g), err));
    REFUSED(SENNIT_STATE, sennit_cache_clone(m->c, 0, &out, err));
    REFUSED(SENNIT_STATE, sennit_cache_trim(m->c, 0, false, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_begin(m->c, err));
    REFUSED(SENNIT_STATE, sennit_cache_merge_rows(m->c, NULL, 0, err));
    CHECK(!out && !sennit_cache_can_publish_row(m->c, 0, 0));
    sennit_cache_append_abort(m->c);
}

/* After the refused call the same rows are taken; and a cache of another kind joins nothing. */
static void misuse_kinds(struct world *w, struct mcache *m)
{
    uint32_t order[MAX_ROWS];
    for (uint32_t r = 0; r < m->n; r++)
        order[r] = r;
    OK(sennit_cache_filter_rows(m->c, order, m->n, err));
    if (!w->family->paged)
        return;
    struct sennit_cache_config config = w->g.config;
    config.page_tokens = config.page_tokens == 32 ? 16 : 32;
    struct sennit_cache *other = new_cache(w, w->pool, &config, 1), *empty = NULL;
    const struct sennit_cache *sources[2] = {m->c, other};
    OK(sennit_cache_make_empty_batch(m->c, &empty, err));
    REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 2, err));
    CHECK(sennit_cache_batch_size(empty) == 0);
    sennit_cache_dispose(&empty);
    sennit_cache_dispose(&other);
}

static bool op_misuse(struct world *w)
{
    struct mcache *m = pick(w);
    struct sennit_cache *out = NULL;
    uint64_t before = cache_fingerprint(m->c), bytes = sennit_pool_bytes(w->pool), keep[MAX_ROWS] = {0};
    uint32_t twice[2] = {0, 0}, outside = m->n;
    const struct sennit_cache *self = m->c;
    REFUSED(SENNIT_RANGE, sennit_cache_extract_row(m->c, m->n, &out, err));
    REFUSED(SENNIT_RANGE, sennit_cache_filter_rows(m->c, &outside, 1, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_rollback(m->c, keep, err));
    REFUSED(SENNIT_STATE, sennit_cache_spec_round_commit(m->c, err));
    REFUSED(SENNIT_RANGE, sennit_cache_commit_prefill(m->c, &outside, 1, err));
    if (m->n > 0) {
        uint64_t longest = sennit_cache_offset(m->c);
        REFUSED(SENNIT_INVALID, sennit_cache_filter_rows(m->c, twice, 2, err));
        misuse_kinds(w, m);
        REFUSED(SENNIT_STATE, sennit_cache_merge_rows(m->c, &self, 1, err));
        REFUSED(sennit_cache_is_trimmable(m->c) ? SENNIT_RANGE : SENNIT_UNSUPPORTED,
                sennit_cache_trim(m->c, longest + 1, false, err));
        misuse_append(w, m);
        misuse_in_step(w, m);
    }
    if (m->n > 1) {
        const struct sennit_cache *sources[2] = {self, self};
        struct sennit_cache *empty;
        OK(sennit_cache_make_empty_batch(m->c, &empty, err));
        REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 2, err));
        CHECK(sennit_cache_batch_size(empty) == 0);
        sennit_cache_dispose(&empty);
    }
    bool same = cache_fingerprint(m->c) == before && sennit_pool_bytes(w->pool) == bytes;
    CHECK(!out && (same || w->wrong)); /* a wrong one may change in a step that is given up */
    return true;
}

/* ---- the run --------------------------------------------------------------------------------- */

struct op {
    const char *name;
    uint32_t weight;
    bool (*run)(struct world *w); /* false: not possible now */
};
static const struct op ops[] = {
    {"append", 42, op_append},  {"new", 7, op_new},         {"merge", 7, op_merge}, {"filter", 5, op_filter},
    {"extract", 6, op_extract}, {"dispose", 3, op_dispose}, {"trim", 5, op_trim},   {"round", 9, op_round},
    {"donor", 5, op_donor},     {"save", 3, op_save},       {"load", 3, op_load},   {"prefill", 1, op_prefill},
    {"misuse", 2, op_misuse},   {"publish", 2, op_publish},
};

/* By weight; families that know more of prefill maintenance do it more often. */
static uint32_t draw_op(struct world *w)
{
    uint32_t i = 0, at = rng_below(&w->rng, 100);
    if (w->family->changes_precision && rng_chance(&w->rng, 4))
        while (ops[i].run != op_prefill)
            i++;
    else
        for (; at >= ops[i].weight; i++)
            at -= ops[i].weight;
    return i;
}

static uint32_t run_op(struct world *w)
{
    uint32_t i;
    do
        i = draw_op(w);
    while (!ops[i].run(w));
    return i;
}

static void check_all(struct world *w, bool everything)
{
    check_accounting(w);
    const struct mcache *m = pick(w);
    check_questions(w, m);
    check_within_projection(w, m, false);
    if (m->n > 0)
        check_row(w, m, rng_below(&w->rng, m->n));
    for (uint32_t r = 0; everything && r < w->main.n; r++)
        check_row(w, &w->main, r);
    for (uint32_t i = 0; everything && i < w->n_serial; i++)
        check_row(w, &w->serial[i], 0);
}

static struct {
    const char *family, *object, *type;
    uint64_t seed, op, n_ops;
    uint32_t world;
    bool done, hostile;
    const struct sn_family *wrong;
} where;

static void say_where(void)
{
    if (where.family && !where.done && !where.wrong)
        fprintf(stderr,
                "FAILED at operation %llu (world %u): conformance%s%s --family %s --type %s --seed "
                "%llu --ops %llu%s\n",
                (unsigned long long)where.op, where.world, where.object ? " --load " : "",
                where.object ? where.object : "", where.family, where.type, (unsigned long long)where.seed,
                (unsigned long long)where.n_ops, where.hostile ? " --hostile" : "");
}

static void run(const struct tested_family *family, sennit_type type, uint64_t n_ops, uint64_t seed, bool verbose,
                struct sn_pool *threads)
{
    uint64_t counts[SN_ARRAY_LEN(ops)] = {0}, outputs = 0, states = 0, twins = 0;
    double worst = 0;
    struct world w;
    for (uint64_t done = 0; done < n_ops; where.world++) {
        world_open(&w, family, type, seed, where.world, where.hostile, where.wrong, threads);
        uint32_t n_world = world_operations(&w, n_ops);
        if (verbose)
            printf("world %u: %s x%u, max_tokens %llu, soft cap %g, sinks %d\n", where.world,
                   sennit_cache_signature(w.main.c), w.g.group, (unsigned long long)w.g.config.max_tokens,
                   w.g.soft_cap, w.g.sinks != NULL);
        for (uint32_t i = 0; i < n_world && done < n_ops; i++, done++) {
            where.op = done;
            uint32_t op = run_op(&w);
            counts[op]++;
            if (verbose)
                printf("%llu %s: %u rows, %u serial\n", (unsigned long long)done, ops[op].name, w.main.n, w.n_serial);
            check_all(&w, done % 64 == 63 || i + 1 == n_world || done + 1 == n_ops);
        }
        world_close(&w);
        outputs += w.n_outputs;
        states += w.n_states;
        twins += w.n_twin;
        worst = w.worst > worst ? w.worst : worst;
    }
    printf("%s %s%s: %llu operations, seed %llu:", family->name, where.type, where.hostile ? ", hostile" : "",
           (unsigned long long)n_ops, (unsigned long long)seed);
    for (size_t i = 0; i < SN_ARRAY_LEN(ops); i++)
        printf(" %s %llu", ops[i].name, (unsigned long long)counts[i]);
    printf("\n  %llu token outputs and %llu row states = solo replay, to the bit; %llu outputs "
           "within the textbook bound, "
           "worst %.1f %% of it\n",
           (unsigned long long)outputs, (unsigned long long)states, (unsigned long long)twins, 100 * worst);
}

/* The family's wrong variant takes its place; the run then passes when the twin, and nothing else, catches it. A
 * fault may be caught by whatever does. */
static void go_wrong(const struct tested_family *f, unsigned variant, bool loaded, bool fault)
{
    static struct sn_family wrong;
    const struct sn_family *const *right = sn_families;
    const char *what;
    if (loaded) {
        wrong = sn_family_external;
        what = spoil_outside(variant);
    } else {
        while (strcmp((*right)->name, family_of(f)) != 0)
            right++;
        wrong = **right;
        const char *(*spoil)(unsigned variant, struct sn_family *family) = fault ? f->fault : f->spoil;
        what = spoil ? spoil(variant, &wrong) : NULL;
    }
    if (!what)
        die("conformance: family %s has no such variant %u", f->name, variant);
    printf("%s variant %u: %s\n", fault ? "faulty" : "wrong", variant, what);
    where.wrong = &wrong;
    die_status = fault ? 0 : 1;
}

static const char usage[] =
    "usage: sennit-conformance --family F [--ops N] [--seed S] [--load OBJECT] [--type f32|f16|bf16]\n"
    "                          [--hostile] [--wrong N | --fault N] [--verbose]\n"
    "       sennit-conformance --list\n"
    "\n"
    "Runs random operations on caches of family F and holds every row to the bit against the same row alone, and\n"
    "against a textbook version of the family in double precision.\n"
    "\n"
    "  --family F      the family; with --load it may be left out where the object has one family\n"
    "  --load OBJECT   a shared object with families of one's own (sennit/conformance.h), such as "
    "./libown-family.so\n"
    "  --ops N         operations (default 4000)\n"
    "  --seed S        of all that is random (default: the time, printed)\n"
    "  --type T        one storage type instead of all three\n"
    "  --hostile       pages of one token, and storage that moves at every write\n"
    "  --wrong N       the family's wrong variant N: passes when the textbook notices\n"
    "  --fault N       the family's faulty variant N: passes when anything notices\n"
    "  --verbose       every operation\n"
    "  --list          what can be tried without --load\n"
    "\n"
    "Leaves with 0 when all was right, with 1 when not; a failure says what to run again.\n";

struct arguments {
    const char *family, *type, *object;
    uint64_t n_ops, seed;
    bool verbose;
    unsigned variant;
    bool fault;
};

static bool number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

static void list_families(void)
{
    for (const struct tested_family *const *f = tested_families; *f; f++)
        printf("%s\n", (*f)->name);
    exit(0);
}

static void read_arguments(int argc, char **argv, struct arguments *a)
{
    uint64_t variant = 0;
    for (int i = 1; i < argc; i++) {
        bool good = true, more = i + 1 < argc;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (strcmp(argv[i], "--list") == 0)
            list_families();
        else if (strcmp(argv[i], "--verbose") == 0)
            a->verbose = true;
        else if (strcmp(argv[i], "--hostile") == 0)
            where.hostile = true;
        else if (more && strcmp(argv[i], "--family") == 0)
            a->family = argv[++i];
        else if (more && strcmp(argv[i], "--load") == 0)
            a->object = argv[++i];
        else if (more && strcmp(argv[i], "--type") == 0)
            a->type = argv[++i];
        else if (more && (strcmp(argv[i], "--wrong") == 0 || strcmp(argv[i], "--fault") == 0)) {
            a->fault = strcmp(argv[i], "--fault") == 0;
            good = number(argv[++i], &variant) && variant > 0 && variant < 1000;
        } else if (more && strcmp(argv[i], "--ops") == 0)
            good = number(argv[++i], &a->n_ops);
        else if (more && strcmp(argv[i], "--seed") == 0)
            good = number(argv[++i], &a->seed);
        else
            die("conformance: '%s' is no option, or lacks its value\n\n%s", argv[i], usage);
        if (!good)
            die("conformance: %s %s: not a number that can be", argv[i - 1], argv[i]);
    }
    a->variant = (unsigned)variant;
    if (a->fault && a->object)
        die("conformance: --fault is of the library's own families");
    if (!a->family && !a->object)
        die("conformance: which family? --list names them\n\n%s", usage);
}

int main(int argc, char **argv)
{
    struct arguments a = {.n_ops = 4000, .seed = (uint64_t)time(NULL)};
    read_arguments(argc, argv, &a);
    const struct tested_family *f = a.object ? load_outside(a.object, a.family, a.seed) : find_tested(a.family);
    if (!f)
        die("conformance: no tested family '%s'; --list names them", a.family);
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    struct sn_pool *threads;
    OK(sn_pool_create(&threads, &heap, N_WORKERS, false, err));
    printf("seed %llu\n", (unsigned long long)a.seed);
    atexit(say_where);
    if (a.variant > 0)
        go_wrong(f, a.variant, a.object != NULL, a.fault);
    static const struct {
        const char *name;
        sennit_type type;
    } types[] = {{"f32", SENNIT_F32}, {"f16", SENNIT_F16}, {"bf16", SENNIT_BF16}};
    bool any = false;
    for (size_t i = 0; i < SN_ARRAY_LEN(types); i++) {
        if (a.type && strcmp(a.type, types[i].name) != 0)
            continue;
        where.family = f->name;
        where.object = a.object;
        where.type = types[i].name;
        where.seed = a.seed;
        where.n_ops = a.type ? a.n_ops : a.n_ops / 3 + (i < a.n_ops % 3); /* the worlds depend on it */
        where.world = (uint32_t)i * 1000000;                              /* other worlds for each type */
        any = true;
        run(f, types[i].type, where.n_ops, a.seed, a.verbose, threads);
    }
    where.done = any;
    die_status = 1;
    if (where.wrong)
        die("nobody noticed");
    if (!any)
        die("conformance: type '%s' is not one of f32, f16, bf16", a.type);
    sn_pool_destroy(threads);
    return 0;
}

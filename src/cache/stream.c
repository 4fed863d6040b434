/* Saved rows. A record is, little-endian:
 *
 *   "SNROW\r\n\x1a" | u32 version | u32 numerics | u32 n, n bytes of signature | u64 tokens | u64
 * floor | u64 body bytes | body (the family's) | u64 XXH3-64 of everything before it
 *
 * A reader allocates what it has read and one page more, so a stream that lies about its lengths
 * costs nothing. */
#define XXH_STATIC_LINKING_ONLY /* the state's size: it lives on the stack */
#include <xxhash.h>

#include "cache/family.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "saved rows are little-endian; this machine needs a byte-swapping body"
#endif

static const char MAGIC[8] = {'S', 'N', 'R', 'O', 'W', '\r', '\n', 0x1a};
enum { VERSION = 1, MAX_SIGNATURE = SN_SIGNATURE_BYTES - 1 };

static sennit_status stream_move(struct sennit_stream *s, void *data, size_t n_bytes, bool read,
                                 struct sennit_error *err)
{
    const char *what = read ? "read" : "write";
    if (s->failed)
        return sn_fail(err, read ? SENNIT_FORMAT : SENNIT_IO, "the stream has failed before: no more to %s", what);
    bool fits = s->limit == 0 || (s->n_bytes <= s->limit && n_bytes <= s->limit - s->n_bytes);
    if (!fits) {
        s->failed = true;
        return sn_fail(err, SENNIT_FORMAT, "the saved row goes on past the stream's limit of %llu bytes",
                       (unsigned long long)s->limit);
    }
    if (n_bytes > 0 && !s->move(s->ctx, data, n_bytes)) {
        s->failed = true;
        if (read)
            return sn_fail(err, SENNIT_FORMAT, "the saved row ends early, after %llu bytes",
                           (unsigned long long)s->n_bytes);
        return sn_fail(err, SENNIT_IO, "the stream took no more after %llu bytes", (unsigned long long)s->n_bytes);
    }
    s->n_bytes += n_bytes;
    if (s->hash && n_bytes > 0)
        XXH3_64bits_update(s->hash, data, n_bytes);
    return SENNIT_OK;
}

sennit_status sn_stream_write(struct sennit_stream *stream, const void *data, size_t n_bytes,
                              struct sennit_error *err)
{
    return stream_move(stream, (void *)(uintptr_t)data, n_bytes, false, err);
}

sennit_status sn_stream_read(struct sennit_stream *stream, void *data, size_t n_bytes, struct sennit_error *err)
{
    return stream_move(stream, data, n_bytes, true, err);
}

/* ---- save ------------------------------------------------------------------------------------ */

static sennit_status write_record(const struct sennit_cache *cache, const struct sn_row *row, struct sennit_stream *s,
                                  struct sennit_error *err)
{
    uint32_t n_signature = (uint32_t)strlen(cache->lineage->signature);
    uint32_t head[3] = {VERSION, SENNIT_NUMERICS, n_signature};
    uint64_t body = sn_row_body_bytes(cache, row);
    uint64_t lengths[3] = {row->n_tokens, row->floor, body};
    SN_TRY(sn_stream_write(s, MAGIC, sizeof MAGIC, err));
    SN_TRY(sn_stream_write(s, head, sizeof head, err));
    SN_TRY(sn_stream_write(s, cache->lineage->signature, n_signature, err));
    SN_TRY(sn_stream_write(s, lengths, sizeof lengths, err));
    return cache->ops->save_body(cache, row, s, err);
}

sennit_status sennit_cache_save(const struct sennit_cache *cache, uint32_t row, struct sennit_stream *stream,
                                struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "save", err));
    SN_TRY(sn_cache_check_row(cache, row, err));
    if (!stream || !stream->move)
        return sn_fail(err, SENNIT_INVALID, "save: the stream has no move function");
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    stream->hash = &hash;
    sennit_status status = write_record(cache, &cache->rows[row], stream, err);
    stream->hash = NULL;
    uint64_t sum = XXH3_64bits_digest(&hash);
    return status == SENNIT_OK ? sn_stream_write(stream, &sum, sizeof sum, err) : status;
}

/* ---- load ------------------------------------------------------------------------------------ */

static sennit_status read_head(const struct sennit_cache *like, struct sennit_stream *s, struct sennit_error *err)
{
    char magic[sizeof MAGIC], signature[MAX_SIGNATURE + 1];
    uint32_t head[3];
    SN_TRY(sn_stream_read(s, magic, sizeof magic, err));
    if (memcmp(magic, MAGIC, sizeof MAGIC) != 0)
        return sn_fail(err, SENNIT_FORMAT, "this is not a saved row: wrong magic");
    SN_TRY(sn_stream_read(s, head, sizeof head, err));
    if (head[0] != VERSION)
        return sn_fail(err, SENNIT_FORMAT, "saved row of format version %u; this library reads %d", head[0], VERSION);
    if (head[2] > MAX_SIGNATURE)
        return sn_fail(err, SENNIT_FORMAT, "saved row: signature length %u is above %d", head[2], MAX_SIGNATURE);
    SN_TRY(sn_stream_read(s, signature, head[2], err));
    signature[head[2]] = '\0';
    if (head[1] != SENNIT_NUMERICS)
        return sn_fail(err, SENNIT_INVALID, "saved row of numeric specification %u; this library computes by %d",
                       head[1], SENNIT_NUMERICS);
    if (strlen(signature) != head[2] || strcmp(signature, like->lineage->signature) != 0)
        return sn_fail(err, SENNIT_INVALID, "saved row of kind '%s'; this cache is '%s'", signature,
                       like->lineage->signature);
    return SENNIT_OK;
}

static sennit_status read_lengths(const struct sennit_cache *like, struct sennit_stream *s, struct sn_row *row,
                                  struct sennit_error *err)
{
    uint64_t lengths[3];
    SN_TRY(sn_stream_read(s, lengths, sizeof lengths, err));
    uint64_t max = like->config.max_tokens;
    if (lengths[0] > max)
        return sn_fail(err, SENNIT_FORMAT, "saved row: %llu tokens, above this cache's max_tokens %llu",
                       (unsigned long long)lengths[0], (unsigned long long)max);
    if (lengths[1] > lengths[0])
        return sn_fail(err, SENNIT_FORMAT, "saved row: reusable offset %llu is above its %llu tokens",
                       (unsigned long long)lengths[1], (unsigned long long)lengths[0]);
    row->n_tokens = lengths[0];
    row->floor = lengths[1];
    uint64_t body = sn_row_body_bytes(like, row);
    if (body == UINT64_MAX || lengths[2] != body)
        return sn_fail(err, SENNIT_FORMAT, "saved row: %llu body bytes do not fit %llu tokens",
                       (unsigned long long)lengths[2], (unsigned long long)lengths[0]);
    if (s->limit != 0 && (s->n_bytes > s->limit || body > s->limit - s->n_bytes))
        return sn_fail(err, SENNIT_FORMAT,
                       "saved row: a body of %llu bytes is above the stream's limit of %llu bytes",
                       (unsigned long long)body, (unsigned long long)s->limit);
    return SENNIT_OK;
}

static sennit_status read_record(struct sennit_cache *cache, struct sennit_stream *s, struct sennit_error *err)
{
    struct sn_row row = {0};
    SN_TRY(read_head(cache, s, err));
    SN_TRY(read_lengths(cache, s, &row, err));
    SN_TRY(sn_cache_reserve_rows(cache, 1, err));
    SN_TRY(cache->ops->load_body(cache, &row, s, err));
    cache->rows[0] = row;
    cache->n_rows = 1;
    return SENNIT_OK;
}

sennit_status sennit_cache_load(const struct sennit_cache *like, struct sennit_stream *stream,
                                struct sennit_cache **out, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(like, "load", err));
    if (!stream || !stream->move || !out)
        return sn_fail(err, SENNIT_INVALID, "load: out is NULL or the stream has no move function");
    struct sennit_cache *cache = NULL;
    SN_TRY(sn_cache_new_like(like, &cache, err));
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    stream->hash = &hash;
    sennit_status status = read_record(cache, stream, err);
    stream->hash = NULL;
    uint64_t want = XXH3_64bits_digest(&hash), have = 0;
    if (status == SENNIT_OK)
        status = sn_stream_read(stream, &have, sizeof have, err);
    if (status == SENNIT_OK && have != want)
        status = sn_fail(err, SENNIT_FORMAT, "saved row: checksum %016llx, computed %016llx: the data is damaged",
                         (unsigned long long)have, (unsigned long long)want);
    if (status != SENNIT_OK) {
        sennit_cache_dispose(&cache);
        return status;
    }
    *out = cache;
    return SENNIT_OK;
}

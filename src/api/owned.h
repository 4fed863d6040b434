/* Results that outlive the objects that made them: a block that remembers its allocator. */
#ifndef SN_OWNED_H
#define SN_OWNED_H

#include "base/base.h"
#include "sennit/model.h"

/* Copies n bytes and a NUL into *out, from the host allocator of `heap`. SENNIT_NOMEM. */
sennit_status sn_own_text(struct sn_heap *heap, const char *data, size_t n, struct sennit_text *out,
                          struct sennit_error *err);
/* The same for ids; the counts of replaced and dropped bytes are the caller's to set. */
sennit_status sn_own_tokens(struct sn_heap *heap, const int32_t *ids, size_t n, struct sennit_tokens *out,
                            struct sennit_error *err);

#endif

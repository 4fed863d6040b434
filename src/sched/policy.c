#include "sched/policy.h"

static uint32_t least(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t m = a < b ? a : b;
    m = m < c ? m : c;
    return m > UINT32_MAX ? UINT32_MAX : (uint32_t)m;
}

void sn_form_spans(const struct sn_want *rows, uint32_t n_rows, uint32_t chunk, uint32_t step_tokens,
                   uint32_t logit_rows, uint32_t *n_tokens)
{
    uint32_t left = step_tokens, spare = logit_rows - n_rows;
    for (uint32_t i = 0; i < n_rows; i++) {
        n_tokens[i] = rows[i].n_pending == 1 && left > 0;
        left -= n_tokens[i];
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        if (rows[i].n_pending == 1)
            continue;
        uint64_t most = rows[i].all_logits ? (uint64_t)spare + 1 : UINT64_MAX;
        n_tokens[i] = least(least(rows[i].n_pending, rows[i].n_max, chunk), left, most);
        left -= n_tokens[i];
        if (rows[i].all_logits && n_tokens[i] > 1)
            spare -= n_tokens[i] - 1;
    }
}

enum sn_admission sn_admit(uint64_t need, uint64_t reserved, uint64_t budget, uint32_t n_rows, uint32_t max_rows)
{
    if (need > budget)
        return SN_NEVER;
    if (n_rows >= max_rows || reserved > budget || need > budget - reserved)
        return SN_WAIT;
    return SN_ADMIT;
}

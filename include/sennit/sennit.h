/* Sennit: language models on CPUs, many conversations in one batch.
 *
 * A model (sennit/model.h) is a file, opened and repacked once. An engine (sennit/engine.h) runs it: you submit
 * requests, one thread steps the engine, events come back. All running requests share each step, and each one gets,
 * bit for bit, the answer that it would have had alone, at any batch size, chunk size, thread count and instruction
 * set. What makes that possible is the batchable-cache contract (sennit/cache.h): every kind of layer state can merge
 * rows into a running batch, filter them, pull one out, trim it, roll it back and write it to disk, and the scheduler
 * knows nothing else.
 *
 *     sennit_model_open -> sennit_engine_create -> sennit_engine_submit -> { sennit_engine_step,
 *     sennit_request_next_event } until SENNIT_EVENT_END -> sennit_request_free, _engine_free, _model_free
 */
#ifndef SENNIT_H
#define SENNIT_H

#include "sennit/base.h"
#include "sennit/cache.h"
#include "sennit/engine.h"
#include "sennit/family.h"
#include "sennit/model.h"
#include "sennit/tensor.h"

#endif

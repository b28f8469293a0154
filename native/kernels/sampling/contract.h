// Contract of the sampling family: from one row of logits [V] to one token, by what that row's request asked for. Rows share nothing:
// a draw depends on its logits, its spec, the history of its request and the number of the draw, never on the batch or the threads.
//
// Order of work on a row x, the model's own logits:
//   1. finite?        a NaN or an infinity ends the request (DrawStatus::not_finite)
//   2. report         log softmax(x) of the chosen token and of the num_top likeliest: none of the steps below changes it
//   3. logit bias     x[t] += bias[t]
//   4. repetition     for each token of prompt or answer: x > 0 ? x / penalty : x * penalty  (Keskar et al. 2019, as Hugging Face does)
//   5. frequency and presence    x -= frequency * count + presence, for tokens generated `count` > 0 times  (as the OpenAI API does)
//   6. minimum        end ids are banned while fewer than min_tokens are generated
//   7. greedy         temperature 0: the largest x, of equals the lowest id
//   8. temperature, then top-k, then top-p over what top-k left, then min-p relative to the likeliest; then one draw
// Rank is by x, of equals the lowest id first, so every cut keeps an exact number of tokens. top-p (Holtzman et al. 2020) keeps the
// fewest tokens, by rank, whose probability reaches it. Nothing sorts the vocabulary: cuts are found by selection.
//
// Draw n of seed s takes its uniform number from Philox4x32-10 (Salmon et al. 2011) with key s and counter n.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/thread_pool.h"

namespace roofline {

// Checked by the caller (core/sampling.py): ranges, and every token id below V.
struct SamplingSpec {
  float temperature = 1;   // 0: greedy
  int64_t top_k = 0;       // <= 0: all
  double top_p = 1;
  float min_p = 0;
  float repetition = 1, presence = 0, frequency = 0;
  int64_t min_tokens = 0;
  uint64_t seed = 0;
  int num_top = -1;        // alternatives to report; -1: no log-probabilities at all
  std::vector<std::pair<int32_t, float>> bias;
  std::vector<int32_t> end_ids;
};

// What a request asked for and which tokens it has seen. Counts are kept only where a penalty needs them.
class SamplingState {
 public:
  SamplingState(SamplingSpec spec, const int32_t* prompt, int64_t prompt_len);
  void observe(int32_t token);                                      // `token` was generated: the next draw is one further
  const SamplingSpec& spec() const { return spec_; }
  int64_t num_generated() const { return num_generated_; }
  const std::unordered_map<int32_t, int32_t>& counts() const { return counts_; }   // times generated; 0: in the prompt only

 private:
  SamplingSpec spec_;
  std::unordered_map<int32_t, int32_t> counts_;
  int64_t num_generated_ = 0;
};

enum class DrawStatus : int { ok, not_finite, nothing_left };       // nothing_left: every token is banned

struct Draw {
  DrawStatus status = DrawStatus::ok;
  int32_t token = -1;
  float logprob = 0;                                                // valid with num_top >= 0
  std::vector<std::pair<int32_t, float>> top;                       // best first
};

// One draw for each row of logits [num_rows, vocab_size], rows shared out over the pool's threads; none: the caller's thread does all.
void sample_rows(const float* logits, int64_t num_rows, int64_t vocab_size, const SamplingState* const* states, ThreadPool* pool,
                 Draw* draws);

// Uniform in [0, 1), 53 bits: number `counter` of the stream `seed`.
double philox_uniform(uint64_t seed, uint64_t counter);

}  // namespace roofline

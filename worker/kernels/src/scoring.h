// Log probabilities: of one token of a row of logits, and of the likeliest. Included inside the namespace of an instruction
// set, after sampling.h.

// Sum over the row of e to the power of (logit - largest).
static double mass_of(const Line& line) {
  double total = 0;
  for (int b = 0; b < line.blocks; b++) {
    F v[4];
    load_span(line, b, v);
    for (int i = 0; i < 4; i++) v[i] = exponential(max(set1(kLeastExponent), sub(v[i], set1(line.peak))));
    total += sum(add(add(v[0], v[1]), add(v[2], v[3])));
  }
  return total;
}

static inline bool comes_before(const float* logits, int a, int b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

// The count likeliest tokens, best first; of equally likely ones those with lower ids.
static void likeliest(const Line& line, int count, int32_t* tokens) {
  const float bound = logit_of_rank(line, count);
  int above = 0;
  for (int b = 0; b < line.blocks; b++) {
    if (!(line.summits[b] > bound)) continue;
    const int end = line.vocab < (b + 1) * kSpan ? line.vocab : (b + 1) * kSpan;
    for (int i = b * kSpan; i < end && above < count; i++)
      if (line.logits[i] > bound) tokens[above++] = i;
  }
  for (int i = 0; i < line.vocab && above < count; i++)
    if (line.logits[i] == bound) tokens[above++] = i;
  for (; above < count; above++) tokens[above] = 0;  // of what is no number, any will do
  for (int i = 1; i < count; i++) {
    const int32_t token = tokens[i];
    int at = i;
    for (; at > 0 && comes_before(line.logits, token, tokens[at - 1]); at--) tokens[at] = tokens[at - 1];
    tokens[at] = token;
  }
}

// An item is a thread, which takes rows until there are none.
static void score(const Args& a, int item) {
  Sampling& work = *a.sampling;
  Line line = line_in(work, item);
  for (int row; (row = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED)) < work.rows;) {
    hk_score& wanted = work.scores[row];
    line.logits = work.logits + (size_t)row * work.vocab;
    survey(line);
    wanted.peak = line.peak;
    wanted.mass = mass_of(line);
    if (wanted.num_top > 0) likeliest(line, wanted.num_top, work.top + (size_t)row * work.most_top);
  }
}

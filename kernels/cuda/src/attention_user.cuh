// Scores and masks that users write: the policy that makes one of ours of them.
//
// The host writes user_program.cuh, from the expressions of one problem (attention_program.go), and
// has it compiled with these sources when the problem is first met, with -DUSER_TABLES and
// -DUSER_AXES, which say how many tables are looked up and how many axes they have together, 1
// where there are none, and with -DARGUMENT_BYTES, how large the host takes the arguments to be.
// -DUSER_DROPS says whether there is dropout, and -DUSER_PLACES whether it and slopes are those of
// a larger problem: attention_user_places.cuh. The program has
//
//   USER_SCORE, USER_MASK, USER_OPTIONS   whether there is a score, a mask beyond its bands, and any of OptionScore's options
//   USER_MASK_BY_HEAD                     whether that mask differs from head to head
//   USER_BLOCK_QUERIES, USER_BLOCK_KEYS   blocks of so many queries and keys in which that mask is the same for all pairs
//   USER_GAINS                            whether the score's derivative by the score before it is other than 1
//   USER_LOOKUPS                          how many lookups of floats there are
//   USER_SLOPES_BY_SCORE                  whether the derivative by something looked up differs with the score
//   userScore<EXACT>(a, pair)             the score
//   userScore<EXACT>(a, pair, slope)      the score, and its derivative by the score before it
//   userVisible(a, pair)                  whether the mask, beyond its bands, shows the pair
//   userBands(a, pair, lo, hi)            narrows the band of a BandMask
//   eachUserLookup(f)                     calls f with an object of each lookup of floats: see UserSums
#pragma once
#include "attention_dropout.cuh"
#include "attention_tiles.cuh"
#include "score.cuh"

// UserArguments are those of a kernel with a user's score or mask: userArguments in
// attention_score.go.
struct UserArguments : AttentionArguments {
  const void* tables[USER_TABLES];
  void* sums[USER_TABLES];  // of a table's gradient, zero at launch; null where nobody asked
  // what the mask shows: see attention_user_lists.cuh; null where only its band is known
  const void* lists;
  // (sequences) where they lie in a larger problem, null unless USER_PLACES
  const int4* places;
  int32_t exact;            // sums are ExactSums, otherwise of float32
  // of the lists: words of a line, and how many cells, as a power of two, share a bit
  int32_t words, shift;
  // of the lists: queries, or keys, of a line; keys, or queries, of a cell
  int32_t line, cell;
  int32_t together, byKeys; // lines that make a tile; UserLines
  int32_t planes, group;    // how many lists a line has, and for how many query heads each
  // of all tables, one after the other: how many elements, and how many apart
  int2 axes[USER_AXES];
};

// UserPlace is a place on an axis: that of the thread's first pair and, known when the kernel is
// compiled, how far behind it this one is. So what a thread converts to a float is one integer, not
// one for each pair.
struct UserPlace {
  int first, behind;

  DEVICE UserPlace(int first = 0, int behind = 0) : first(first), behind(behind) {}
  DEVICE int value() const { return (int)((uint32_t)first + (uint32_t)behind); }
  DEVICE float real() const { return (float)first + (float)behind; }
  DEVICE UserPlace operator+(UserPlace p) const { return {first + p.first, behind + p.behind}; }
  DEVICE UserPlace operator-(UserPlace p) const { return {first - p.first, behind - p.behind}; }
};

// UserPair is what an expression knows of a pair.
struct UserPair {
  float score;
  int batch, head, keyHead;
  UserPlace query, key;
  int queryLength, keyLength;
};

// Integers have 32 bits and wrap around. Division truncates, by 0 it gives 0, and x as the
// remainder.
DEVICE int userAdd(int x, int y) { return (int)((uint32_t)x + (uint32_t)y); }
DEVICE int userSub(int x, int y) { return (int)((uint32_t)x - (uint32_t)y); }
DEVICE int userMul(int x, int y) { return (int)((uint32_t)x * (uint32_t)y); }
DEVICE int userDiv(int x, int y) { return y == 0 ? 0 : y == -1 ? userSub(0, x) : x / y; }
DEVICE int userRem(int x, int y) { return y == 0 ? x : y == -1 ? 0 : x % y; }
DEVICE int userAbs(int x) {
  int z;
  asm("abs.s32 %0, %1;" : "=r"(z) : "r"(x));
  return z;
}
// For Hopper, ptxas 13.0 compiles max(x, max(y, -z)) of signed integers as max(x, y, z), and min
// likewise, but not of unsigned ones, which are in the same order behind a turned highest bit.
DEVICE uint32_t turned(int x) { return (uint32_t)x ^ 0x80000000u; }
DEVICE int userMin(int x, int y) {
  uint32_t z;
  asm("min.u32 %0, %1, %2;" : "=r"(z) : "r"(turned(x)), "r"(turned(y)));
  return (int)turned(z);
}
DEVICE int userMax(int x, int y) {
  uint32_t z;
  asm("max.u32 %0, %1, %2;" : "=r"(z) : "r"(turned(x)), "r"(turned(y)));
  return (int)turned(z);
}
// userIndex moves an index to the nearer end of an axis.
DEVICE int userIndex(int x, int size) { return min(max(x, 0), size - 1); }

// Floats: of two numbers of which one is NaN, neither is the smaller. EXACT is to float32's last
// places.
DEVICE float userMin(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
DEVICE float userMax(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
template <bool EXACT> DEVICE float userDivide(float x, float y) { return EXACT || !(fabsf(y) < 0x1p126f) ? x / y : __fdividef(x, y); }
template <bool EXACT> DEVICE float userExp(float x) { return EXACT ? expf(x) : exp2Fast(x * LOG2E); }
template <bool EXACT> DEVICE float userLog(float x) { return EXACT ? logf(x) : __logf(x); }
template <bool EXACT> DEVICE float userTanh(float x) { return hyperbolicTangent<EXACT>(x, 1); }
template <bool EXACT> DEVICE float userSigmoid(float x) {
  return EXACT ? 1 / (1 + expf(-x)) : __fdividef(1, 1 + exp2Fast(-x * LOG2E));
}

// userElement reads an element of a table. Tables do not change while a kernel runs.
DEVICE float userElement(const float* p) { return __ldg(p); }
DEVICE float userElement(const __nv_bfloat16* p) { return widen(*p); }
DEVICE float userElement(const __half* p) { return widen(*p); }
DEVICE int userElement(const int* p) { return __ldg(p); }
DEVICE int userElement(const int64_t* p) { return (int)__ldg((const long long*)p); }

// UserVaries is where in a score matrix a value differs.
enum UserVaries { UserNowhere, UserRows, UserColumns, UserDiagonals, UserPairs };

#include "user_program.cuh"

#if USER_PLACES
#include "attention_user_places.cuh"
#else
// optionTile is what OptionScore takes for a tile.
template <class Tile> DEVICE const Tile& optionTile(const UserArguments&, const Tile& t) { return t; }
#endif

// UserPairsOf makes pairs of a tile's sequence and head, counted from the thread's first.
struct UserPairsOf {
  UserPair first;

  template <class Tile> DEVICE UserPairsOf(const AttentionArguments& a, const Tile& t)
      : first{0, t.sequence(), t.head, t.head / (a.heads / a.keyHeads), t.query, t.key, t.sq(), t.sk()} {}
  DEVICE UserPair at(int i, int j, float score = 0) const {
    UserPair p = first;
    p.query.behind += i, p.key.behind += j, p.score = score;
    return p;
  }
};

// UserMask is a band, narrowed to those of the user's mask, and the rest of that mask.
struct UserMask : BandMask {
  const UserArguments* a;
  Sequence s;
  int cells[2];  // where a kernel's key tile is pieced together: see attention_user_forward_sm90.cu
  int head;      // of queries, for tiles that do not know their own

  static DEVICE UserMask of(const AttentionArguments& arguments, const Sequence& s, int head = 0) {
    const UserArguments& a = (const UserArguments&)arguments;
    UserMask m = {BandMask::of(a, s), &a, s, {}, head};
    userBands(a, UserPair{0, s.index, 0, 0, 0, 0, s.sq, s.sk}, m.lo, m.hi);
    return m;
  }

  DEVICE bool whole(int row, int rows, int column, int columns) const {
    return !USER_MASK && BandMask::whole(row, rows, column, columns);
  }

  template <int ROWS, int COLUMNS, bool KEYS> DEVICE int headOf(const ScoreTile<ROWS, COLUMNS, KEYS>&) const { return head; }
  template <class T, bool EXACT, int ROWS, int COLUMNS> DEVICE int headOf(const ScoreTileOf<T, EXACT, ROWS, COLUMNS>& t) const { return t.head; }

  template <class Tile> DEVICE void hide(Tile t, float value, bool before = true, bool behind = true) const {
    if constexpr (USER_MASK) {
      constexpr int far = 1 << 27, columns = Tile::WIDTH, rows = 32 * Tile::SIZE / columns;
      const bool cuts = t.key + (Tile::BY_KEYS ? rows : columns) > sk || hi < far || Tile::BY_KEYS && (t.query + columns > sq || lo > -far);
      if (Tile::BY_KEYS ? cuts : cuts || lo > -far) BandMask::hide(t, value, lo > -far, cuts);
      UserPair first;
      const UserArguments* from;
      if constexpr (Tile::BY_KEYS) {
        from = (const UserArguments*)&t.c.a;
        first = {0, t.sequence(), t.head, 0, t.query, t.key, t.sq(), t.sk()};
      } else {
        from = a;
        first = {0, s.index, headOf(t), 0, t.query, t.key, s.sq, s.sk};
      }
      first.keyHead = USER_MASK_BY_HEAD ? first.head / (from->heads / from->keyHeads) : 0;
      t.each([&](float& x, int i, int j) {
        UserPair p = first;
        p.query.behind += i, p.key.behind += j;
        if (!userVisible(*from, p)) x = value;
      });
    } else {
      BandMask::hide(t, value, before, behind);
    }
  }
};

#if !USER_LISTS
template <int SIZE> DEVICE Tiles keyTiles(const UserMask& m, int row, int rows) {
  Tiles t = keyTiles<SIZE>((const BandMask&)m, row, rows);
  if (USER_MASK) t.cleanFirst = t.cleanEnd = 0;
  return t;
}
template <int SIZE, bool ROWS_EXIST> DEVICE Tiles queryTiles(const UserMask& m, int key, int keys) {
  Tiles t = queryTiles<SIZE, ROWS_EXIST>((const BandMask&)m, key, keys);
  if (USER_MASK) t.cleanFirst = t.cleanEnd = 0;
  return t;
}
#endif

// UserScore is OptionScore's score, changed by the user's.
struct UserScore {
  static constexpr bool CHANGES = true, ADDS = true, DROPS = true;
  using Mask = UserMask;

  // innerFactor is what the scores lack that go into the user's.
  template <bool EXACT> static DEVICE float innerFactor(const AttentionArguments& a) {
    return USER_OPTIONS ? OptionScore::factorOf<EXACT>(a) : a.scale;
  }
  template <bool EXACT = false> static DEVICE float factorOf(const AttentionArguments& a) { return USER_SCORE ? 1 : innerFactor<EXACT>(a); }
  static DEVICE bool adds(const AttentionArguments&) { return true; }
  static constexpr bool GAINS = USER_GAINS || USER_LOOKUPS > 0;
  static DEVICE bool hasGains(const AttentionArguments& a) { return GAINS || USER_OPTIONS && OptionScore::hasGains(a); }

  template <class Tile> static DEVICE void change(const AttentionArguments& arguments, Tile t) {
    const UserArguments& a = (const UserArguments&)arguments;
    if constexpr (USER_OPTIONS) OptionScore::change(a, optionTile(a, t));
    const float factor = innerFactor<Tile::EXACT>(a);
    const UserPairsOf pairs(a, t);
    if constexpr (Tile::BY_KEYS && GAINS) {
      static_assert(!USER_OPTIONS || !Tile::BY_KEYS, "tiles by keys have one place for gains");
      t.eachWithGain([&](float& x, int i, int j) {
        const UserPair p = pairs.at(i, j, x * factor);
        float slope;
        x = userScore<Tile::EXACT>(a, p, slope);
        // Where the mask hides a pair, its dS is 0, and the derivative may be anything.
        if (USER_MASK && !(fabsf(slope) <= 0x1p15f) && !userVisible(a, p)) slope = 0;
        return slope;
      });
    } else {
      t.each([&](float& x, int i, int j) {
        const UserPair p = pairs.at(i, j, x * factor);
        if (USER_SCORE) x = userScore<Tile::EXACT>(a, p);
      });
    }
  }

  // addGradients adds to the sums of tables. dS of tiles by keys lacks keepScaleAfter.
  template <class Tile> static DEVICE void addGradients(const AttentionArguments& arguments, Tile t);
};

// UserPlain is a score that is the product times a positive scale, with a user's mask.
struct UserPlain : PlainScore {
  using Mask = UserMask;
};

// ExactSum is a sum of floats that does not depend on their order: integers of 24 bits each, of
// which part n counts units of 2^(24n − 149), with room for 2^39 terms; and a sum of what is not
// finite.
struct ExactSum {
  static constexpr int PARTS = 12;
  int64_t parts[PARTS];
  float other;
  int32_t reserved;

  DEVICE void add(float x) {
    const uint32_t bits = __float_as_uint(x), exponent = bits >> 23 & 255;
    if (exponent == 255) {
      atomicAdd(&other, x);
      return;
    }
    const int at = max(exponent, 1u) - 1;
    const uint64_t magnitude = (uint64_t)((bits & 0x7FFFFF) | (exponent ? 0x800000 : 0)) << at % 24;
    const int64_t low = magnitude & 0xFFFFFF, high = magnitude >> 24, sign = x < 0 ? -1 : 1;
    if (low) atomicAdd((unsigned long long*)&parts[at / 24], (unsigned long long)(low * sign));
    if (high) atomicAdd((unsigned long long*)&parts[at / 24 + 1], (unsigned long long)(high * sign));
  }

  DEVICE float value() const {
    if (other != 0) return other;
    int64_t digits[PARTS], carry = 0;
    for (int n = 0; n < PARTS; n++) {
      const int64_t x = parts[n] + carry;
      carry = n + 1 < PARTS ? x >> 24 : 0;
      digits[n] = x - (carry << 24);
    }
    double sum = 0;
    for (int n = PARTS - 1; n >= 0; n--) sum += scalbn((double)digits[n], 24 * n - 149);
    return (float)sum;
  }
};

// UserSums adds a warp's tile of dS to the sums of the gradient of what one lookup finds. A Lookup
// has
//
//   TABLE, VARIES            its table, and where in a score matrix its place differs
//   slope<EXACT>(a, pair)    the derivative of the score by what is looked up
//   place(a, pair)           the place in the table, row-major
//
// Terms of one place are summed in registers, in an order that the problem's shape alone decides,
// before they are added. The tile has ROWS·16 rows and COLUMNS·8 columns in the order of
// accumulators, as a ScoreTile has.
template <class Lookup, int ROWS, int COLUMNS, bool BY_KEYS> struct UserSums {
  static constexpr bool BY_ROW = Lookup::VARIES == (BY_KEYS ? UserColumns : UserRows);
  static constexpr bool BY_COLUMN = Lookup::VARIES == (BY_KEYS ? UserRows : UserColumns);
  const UserArguments& a;
  const UserPairsOf& pairs;
  int64_t last = -1;  // the place of what is still to be added
  float waiting = 0;

  DEVICE UserSums(const UserArguments& a, const UserPairsOf& pairs) : a(a), pairs(pairs) {}
  static DEVICE int lane() { return threadIdx.x % 32; }

  // pairAt is the pair at a row and a column, counted from the thread's first.
  static DEVICE UserPair pairAt(const UserPairsOf& pairs, int row, int column, float score = 0) {
    return BY_KEYS ? pairs.at(column, row, score) : pairs.at(row, column, score);
  }

  DEVICE void flush() {
    if (waiting == 0) return;
    if (a.exact) ((ExactSum*)a.sums[Lookup::TABLE])[last].add(waiting);
    else atomicAdd((float*)a.sums[Lookup::TABLE] + last, waiting);
  }
  // add adds to the place of a pair.
  DEVICE void add(int row, int column, float x) {
    const int64_t at = Lookup::place(a, pairAt(pairs, row, column));
    if (at != last) {
      flush();
      last = at, waiting = 0;
    }
    waiting += x;
  }
  // over sums over lanes whose numbers differ in bits from low to below high.
  static DEVICE float over(float x, int low, int high) {
    for (int bit = low; bit < high; bit *= 2) x += __shfl_xor_sync(~0u, x, bit);
    return x;
  }

  // addTerms takes them from term(i, j, e), which it calls once for each element: row 16i +
  // 8·(e/2), column 8j + e%2.
  template <class F> DEVICE void addTerms(F term) {
    if constexpr (Lookup::VARIES == UserNowhere) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) sum += term(i, j, e);
      sum = over(sum, 1, 32);
      if (lane() == 0) add(0, 0, sum);
    } else if constexpr (BY_ROW) {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float sum = 0;
#pragma unroll
          for (int j = 0; j < COLUMNS; j++) sum += term(i, j, 2 * half) + term(i, j, 2 * half + 1);
          sum = over(sum, 1, 4);
          if (lane() % 4 == 0) add(16 * i + 8 * half, 0, sum);
        }
    } else if constexpr (BY_COLUMN) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < ROWS; i++) sum += term(i, j, e) + term(i, j, e + 2);
          sum = over(sum, 4, 32);
          if (lane() / 4 == 0) add(0, 8 * j + e, sum);
        }
    } else if constexpr (Lookup::VARIES == UserDiagonals) {
      addDiagonals(term);
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) add(16 * i + e / 2 * 8, 8 * j + e % 2, term(i, j, e));
    }
    flush();
  }

  // addDiagonals sums along diagonals. With g = lane/4 and t = lane%4 an element of block m = 2i +
  // half − j lies on diagonal 8m + g − 2t − e of the warp's tile. What neighbours in a row hold
  // moves to the lane whose g is that of the diagonal: e = 1 by one, then t by two and by four.
  // What would leave the eight lanes belongs to the block before.
  template <class F> DEVICE void addDiagonals(F term) {
    // block n is m = n − COLUMNS; the first receives alone
    constexpr int BLOCKS = 2 * ROWS + COLUMNS;
    float even[BLOCKS] = {}, odd[BLOCKS + 1] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
          even[2 * i + half - j + COLUMNS] += term(i, j, 2 * half);
          odd[2 * i + half - j + COLUMNS] += term(i, j, 2 * half + 1);
        }
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) even[n] += __shfl_sync(~0u, g < 1 ? odd[n + 1] : odd[n], (lane() + 4) % 32);
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
      const float next = n + 1 < BLOCKS ? even[n + 1] : 0;
      // of use where t is even
      odd[n] = even[n] + __shfl_sync(~0u, g < 2 ? next : even[n], (lane() + 9) % 32);
    }
    odd[BLOCKS] = 0;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
      const float got = __shfl_sync(~0u, g < 4 ? odd[n + 1] : odd[n], (lane() + 18) % 32);
      if (t == 0) add(8 * (n - COLUMNS), 0, odd[n] + got);
    }
  }
};

template <class Tile> DEVICE void UserScore::addGradients(const AttentionArguments& arguments, Tile t) {
  const UserArguments& a = (const UserArguments&)arguments;
  const UserPairsOf pairs(a, t);
  const float scale = keepScaleAfter(a);
  eachUserLookup([&](auto lookup) {
    using Lookup = decltype(lookup);
    using Sums = UserSums<Lookup, 1, Tile::WIDTH / 8, Tile::BY_KEYS>;
    if (!a.sums[Lookup::TABLE]) return;
    Sums(a, pairs).addTerms([&](int i, int j, int e) {
      const float x = t.x[4 * j + e];
      return x == 0 ? 0 : x * scale * Lookup::template slope<Tile::EXACT>(a, Sums::pairAt(pairs, e / 2 * 8, 8 * j + e % 2));
    });
  });
}

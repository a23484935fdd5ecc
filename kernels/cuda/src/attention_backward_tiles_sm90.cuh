// The work of attention backward for sm_90a: tiles of keys, in the order in which blocks draw them,
// and the query tiles that a block walks over for each.
#pragma once
#include "attention_backward_shape_sm90.cuh"
#include "attention_tiles.cuh"

// BackwardTile is a piece of work: one tile of keys of one head. tile < 0 says that there is no
// more.
struct BackwardTile {
  int sequence, keyHead, tile;
};

// BackwardQueue hands out the tiles in one order to all blocks. Heads are visited together, in
// parts that fit in the L2 cache; among them, all first tiles of keys come first, which in the
// causal case are the longest. Where heads share keys, tiles are long, and a part has one for each
// block: smaller ones would be under way at once all the same, and end with long tiles. Where parts
// are hardly larger than that, the last two are one.
//
// Where the order of sums counts, a tile follows the one before it at a distance of about a step,
// so tiles of one head that begin at once stand in line, and parts need enough heads that blocks
// which become free find one whose line has moved on. In the causal case, unless a window keeps the
// line short, the second half of a part, whose tiles are short, and the first half of the next are
// drawn in turn, or at D=128 as many as there are blocks: then blocks become free one by one. How
// many, and how large parts are best, was measured.
template <class Shape> struct BackwardQueue {
  const AttentionArguments& a;
  int tiles, heads, parts, even;  // even: the parts, if the last two were not one
  int mixed;  // tiles on either side of two parts' border that are drawn in turn
  // neighbours are sequences of one head, which add to one gradient of the bias
  bool sequencesFirst;

  DEVICE BackwardQueue(const AttentionArguments& a)
      : a(a), tiles((a.longestK + Shape::TileK - 1) / Shape::TileK), heads(a.sequences * a.keyHeads),
        sequencesFirst(Shape::Modified && a.dBias && a.dBiasSequence == 0) {
    const int group = a.heads / a.keyHeads, blocks = gridDim.x;
    const bool whole = !a.causal && a.left < 0 && a.right < 0, lines = a.deterministic && a.causal && a.left < 0;
    const int64_t bytes = (int64_t)a.longestQ * group * (Shape::D * 6 + Shape::DV * 2) + 1;
    const auto ceiling = [](int n, int d) { return (n + d - 1) / d; };
    const auto nearest = [](int64_t n, int64_t d) { return (int)((n + d / 2) / d); };
    int together = 1;
    if (lines) {
      const int64_t cache = (a.longestQ > 2048 ? Shape::D == 128 ? 56 : 32 : 26) << 20;
      const int least = max(1, min(heads, nearest(blocks, tiles * group)));
      parts = even = max(1, min(heads / least, nearest(heads * bytes, cache)));
    } else {
      const int64_t cache = (a.deterministic && a.causal ? 112 : 28) << 20;
      int least = 1;
      if (!a.deterministic) least = group > 1 ? ceiling(blocks, tiles) : 1;
      else if (whole) least = ceiling(blocks + blocks / 4, ceiling(a.longestQ, Shape::TileQ) * group);
      together = max(1, min(heads, max(least, (int)(cache / bytes))));
      parts = even = max(1, ceiling(heads, together));
    }
    if (group > 1 && !a.deterministic && parts > 1 && together * tiles < 2 * blocks) parts--;
    mixed = lines ? heads / parts * tiles / 2 : 0;
    if (Shape::D == 128) mixed = min(mixed, blocks);
  }
  DEVICE int draw() const { return atomicAdd(a.counters, 1) + gridDim.x; }
  DEVICE BackwardTile at(int index) const {
    if (index >= tiles * heads) return {0, 0, -1};
    index = mix(index);
    const int part = partOf(index), width = first(part + 1) - first(part), rest = index - first(part) * tiles;
    const int head = first(part) + rest % width;
    if (sequencesFirst) return {head % a.sequences, head / a.sequences, rest / width};
    return {head / a.keyHeads, head % a.keyHeads, rest / width};
  }
  // The first head of a part, and the part of the tile of this index. Parts differ by at most one
  // head in size, but for the last.
  DEVICE int first(int part) const { return part == parts ? heads : (int)((int64_t)part * heads / even); }
  DEVICE int partOf(int index) const { return min(parts - 1, (int)(((int64_t)(index / tiles + 1) * even - 1) / heads)); }
  // mix exchanges indices around the borders of parts.
  DEVICE int mix(int index) const {
    const int border = first(partOf(min(index + mixed, tiles * heads - 1))) * tiles, behind = index - border + mixed;
    if (border == 0 || behind >= 2 * mixed) return index;
    return border + behind / 2 - (behind % 2 ? 0 : mixed);
  }
  // finish leaves the counters zero for the next launch; every block calls it once, with one
  // thread.
  DEVICE void finish() const {
    if (atomicAdd(a.counters + 1, 1) == (int)gridDim.x - 1) a.counters[0] = a.counters[1] = 0;
  }
};

// BackwardRecord is what the block knows of a tile. It lies in shared memory and is read where it
// is needed, since registers are few.
template <class Shape> struct BackwardRecord {
  static constexpr int TileQ = Shape::TileQ, TileK = Shape::TileK, Bytes = 64;
  using Mask = typename Shape::Score::Mask;
  uint32_t at;

  DEVICE int get(int field) const { return loadShared4(at + 4 * field); }
  DEVICE int sequenceIndex() const { return get(0); }  // negative: there is no more work
  DEVICE int batch() const { return get(1); }
  DEVICE int q0() const { return get(2); }
  DEVICE int k0() const { return get(3); }
  DEVICE int sq() const { return get(4); }
  DEVICE int sk() const { return get(5); }
  DEVICE int lo() const { return get(6); }
  DEVICE int keyHead() const { return get(8); }
  DEVICE int key() const { return get(9); }  // the first of the tile
  // Query tiles [first, end) see keys of the tile; in those of [cleanFirst, cleanEnd) every row
  // sees every key.
  DEVICE int first() const { return get(10); }
  DEVICE int end() const { return get(11); }
  DEVICE int cleanFirst() const { return get(12); }
  DEVICE int cleanEnd() const { return get(13); }
  // From this query tile on, the tile is the first of those that are added to the sums.
  DEVICE int leads() const { return get(14); }
  DEVICE Mask mask() const {
    const uint4 m = loadShared16(at + 16);
    return {(int)m.x, (int)m.y, (int)m.z, (int)m.w};
  }
  DEVICE Sequence sequence() const { return {sequenceIndex(), batch(), q0(), k0(), sq(), sk()}; }

  // The place of this tile among those that are added to the sums of query tile m.
  DEVICE int order(int m) const { return key() / TileK - firstKeyTile<TileK>(lo(), m * TileQ); }

  DEVICE void put(const AttentionArguments& a, const BackwardTile& t) const {
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const Mask mask = Mask::of(a, s);
    const int key = t.tile * TileK;
    // Rows beyond the end need the mask only for what an option may make of them.
    const Tiles tiles = queryTiles<TileQ, Shape::Score::CHANGES>(mask, key, TileK);
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, mask.lo, mask.hi));
    storeShared16(at + 32, make_uint4(t.keyHead, key, tiles.first, tiles.end));
    storeShared16(at + 48, make_uint4(tiles.cleanFirst, tiles.cleanEnd, firstOf<TileQ>(mask.lo, key), 0));
  }
};

// BackwardStep is a query tile and a head.
struct BackwardStep {
  int m, head;
};

// BackwardSteps are a tile's steps: query tiles m from the last down to the first, for one head of
// the group after the other. Every role of the block walks over the same ones.
template <class Shape> struct BackwardSteps {
  BackwardRecord<Shape> record;
  int first, end, m, head, left;  // m, head: of this step; left: the steps left with it

  DEVICE BackwardSteps(const AttentionArguments& a, BackwardRecord<Shape> record) : record(record) {
    const int group = a.heads / a.keyHeads;
    first = record.first();
    end = record.end();
    m = end - 1;
    head = record.keyHead() * group;
    left = max(0, end - first) * group;
  }
  DEVICE void next() {
    left--;
    if (--m < first) {
      m = end - 1;
      head++;
    }
  }
  DEVICE BackwardStep before() const {
    if (m + 1 == end) return {first, head - 1};
    return {m + 1, head};
  }
  DEVICE int cleanFirst() const { return __shfl_sync(~0u, record.cleanFirst(), 0); }
  DEVICE int cleanEnd() const { return __shfl_sync(~0u, record.cleanEnd(), 0); }
  // share tells the compiler that the warp's threads all have the same steps, so that it keeps them
  // in the registers that they share.
  DEVICE void share() {
    first = __shfl_sync(~0u, first, 0);
    end = __shfl_sync(~0u, end, 0);
    m = __shfl_sync(~0u, m, 0);
    head = __shfl_sync(~0u, head, 0);
    left = __shfl_sync(~0u, left, 0);
  }
};

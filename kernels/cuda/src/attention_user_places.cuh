// Parts of a larger problem: dropout and slopes that are those of the whole.
//
// UserArguments has in places, for each sequence, where it lies: its own number there, its first
// row, its first column, and how far that row is ahead of that column.
#pragma once

// Of these USER_PLACES is one, or 0 where there are no places.
enum UserPlaces { PlacedByEights = 1, PlacedAnywhere = 2 };  // where parts begin among the columns

// PlacedDropper is a Dropper of the whole, by rows and columns of a part. Eight neighbouring
// columns of the part have two counters of the whole, unless the part begins at a multiple of
// eight. A branch here would keep the rounds of several draws from going side by side, so that the
// host says which it is.
struct PlacedDropper : Dropper {
  // the part's first row, and its first column: which eight it belongs to, and its place there
  uint32_t row, eight, behind;

  DEVICE PlacedDropper(const AttentionArguments& a, const Sequence& s, int head) : Dropper(a, s, head) {
    const int4 place = __ldg(((const UserArguments&)a).places + s.index);
    plane = place.x * a.heads + head;
    row = place.y, eight = (uint32_t)place.z / 8, behind = (uint32_t)place.z % 8;
  }

  DEVICE uint4 counter(int i, int j) const {
    uint4 c = Dropper::counter(row + i, j);
    c.w += eight;
    return c;
  }

  template <int N> DEVICE void draw(uint4 (&counters)[N]) const {
    if constexpr (USER_PLACES == PlacedByEights) {
      Dropper::draw(counters);
    } else {
#pragma unroll
      for (int n = 0; n < N; n++) {
        uint4 both[2] = {counters[n], counters[n]};
        both[1].w++;
        Dropper::draw(both);
        counters[n] = across(both[0], both[1]);
      }
    }
  }

  // across gives the eight numbers from the behind-th on of the sixteen in x and y.
  DEVICE uint4 across(uint4 x, uint4 y) const {
    if (behind & 4) x.x = x.z, x.y = x.w, x.z = y.x, x.w = y.y, y.x = y.z, y.y = y.w;
    if (behind & 2) x.x = x.y, x.y = x.z, x.z = x.w, x.w = y.x, y.x = y.y;
    const uint32_t bits = behind % 2 * 16;
    return make_uint4(__funnelshift_r(x.x, x.y, bits), __funnelshift_r(x.y, x.z, bits), __funnelshift_r(x.z, x.w, bits),
                      __funnelshift_r(x.w, y.x, bits));
  }
};
// The kernels' headers, which come after this one, draw with it.
#define Dropper PlacedDropper

// PlacedTile is a tile whose sequence's lengths tell OptionScore the distance of rows and columns
// in the whole, where there are slopes. A bias needs the lengths themselves: the host refuses one
// beside slopes.
template <class Tile> struct PlacedTile : Tile {
  const UserArguments& arguments;
  DEVICE PlacedTile(const UserArguments& a, const Tile& t) : Tile(t), arguments(a) {}
  DEVICE int sq() const {
    return arguments.slopes ? Tile::sk() - __ldg(arguments.places + Tile::sequence()).w : Tile::sq();
  }
};
template <class Tile> DEVICE PlacedTile<Tile> optionTile(const UserArguments& a, const Tile& t) { return {a, t}; }

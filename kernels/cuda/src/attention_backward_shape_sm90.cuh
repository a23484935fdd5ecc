// How attention backward for sm_90a lays out a block's shared memory, and what its roles need to
// know of the options.
#pragma once
#include "attention_bias_sm90.cuh"
#include "attention_dq_sm90.cuh"
#include "score.cuh"
#include "wgmma_narrow.cuh"

// backwardKeys is the keys of a tile: two warpgroups' rows, or one's, where dK and dV of 64 keys and
// what a step of so many queries needs are too much for a warpgroup.
constexpr int backwardKeys(int d, int dv, int queries) { return d <= 128 || d <= 192 && dv <= 128 && queries < 64 ? 128 : 64; }

// BackwardShape places everything in shared memory. Tiles lie in chunks of 64 columns, a row of a
// chunk is 128 bytes.
template <int HeadDim, int HeadDimV, int QueryTile, class ScorePolicy, int KeyTile = backwardKeys(HeadDim, HeadDimV, QueryTile)> struct BackwardShape {
  using Score = ScorePolicy;
  using Sums = BackwardSums<HeadDim, QueryTile>;
  static constexpr bool Wide = HeadDim > 128 && KeyTile == 64, Modified = Score::DROPS;
  // A bias alone comes by TMA, and its gradient leaves by it.
  static constexpr bool Biased = isBias<Score>;
  // Slopes alone, which need neither helpers nor places for a bias, come by product.
  static constexpr bool Slants = Score::CHANGES && !Modified && !Biased;
  static constexpr int D = HeadDim, DV = HeadDimV, TileQ = QueryTile, TileK = KeyTile, Stages = 2;
  // Consumer warpgroups, and how many steps later than dS they compute dQ of it: one alone need not
  // wait for another's.
  static constexpr int Groups = !Wide && TileK == 64 ? 1 : 2, Late = Groups - 1, Blocks = Groups == 1 ? 2 : 1;
  // Where registers are too few for P in float32, dS is made from the rounded P that dV takes.
  static constexpr bool RoundedP = Modified || D >= 128 && TileQ >= 64;
  static constexpr int Threads = 128 * (1 + Groups + Modified), Consumers = 4 * Groups;  // warps
  // What setmaxnreg gives to the producers and to each consumer.
  static constexpr int ProducerRegisters = Groups == 1 ? 32 : 24, ConsumerRegisters = Groups == 1 ? 224 : Modified ? 232 : 240;
  static constexpr int Chunks = (D + 63) / 64, ChunksV = (DV + 63) / 64;
  static constexpr int KChunk = TileK * 128, QChunk = TileQ * 128;
  static constexpr int KBytes = Chunks * KChunk, VBytes = ChunksV * KChunk, QBytes = Chunks * QChunk, OBytes = ChunksV * QChunk;
  static constexpr int DSBytes = TileK / 64 * QChunk;
  static constexpr int KAt = 0, VAt = KAt + KBytes, QAt = VAt + VBytes, OAt = QAt + Stages * QBytes;
  static constexpr int DSAt = OAt + Stages * OBytes, PAt = DSAt + (Late + 1) * DSBytes;
  // P on its way between warpgroups, two buffers, in wide shapes. With options the second one holds
  // the bias, or the gains of scores, or the operands of slopes; other shapes have the bias in a place of its own, and gains
  // where dS will be.
  static constexpr int PBytes = Wide ? QChunk : 0, PEnd = PAt + 2 * PBytes;
  static constexpr int BiasAt = Wide ? PAt + PBytes : PEnd, BiasBytes = DSBytes;
  static constexpr int BiasEnd = PEnd + ((Modified || Biased) && !Wide ? BiasBytes : 0);
  static constexpr int BitsAt = BiasEnd, BitsBytes = Modified ? TileK * TileQ / 8 : 0, StatsAt = BitsAt + BitsBytes;
  static_assert(!Modified || TileQ % 64 == 0, "the bits of dropout come for 64 rows at a time");
  static constexpr int StatsEnd = StatsAt + Stages * TileQ * 8;
  static constexpr int SlantsAt = Wide ? PAt + PBytes : StatsEnd, SlantsBytes = Slants ? 32 * (TileK + Stages * TileQ) : 0;
  static_assert(!Wide || SlantsBytes <= PBytes, "slopes share a place with P");
  static constexpr int BarriersAt = Wide ? StatsEnd : SlantsAt + SlantsBytes;
  // 1,024 to align the start
  static constexpr int RecordsAt = BarriersAt + 256, SharedBytes = RecordsAt + 2 * 64 + 1024;
};

// BackwardOptions are what several roles need to know of the options.
template <class Shape> struct BackwardOptions {
  // the bias comes by TMA; its gradient is taken from dS as it lies in shared memory, by helpers or
  // by TMA
  bool dropping, mapped, storing, sending;

  DEVICE BackwardOptions(const AttentionArguments& a)
      : dropping(Shape::Modified && a.dropThreshold),
        mapped(Shape::Biased || Shape::Modified && a.bias && a.biasMapped && a.biasElement != ElementF32 &&
                                    !(Shape::Wide && Shape::Score::hasGains(a))),
        storing(Shape::Modified && a.dBias && !Shape::Score::hasGains(a)), sending(Shape::Biased && a.dBias) {}
};

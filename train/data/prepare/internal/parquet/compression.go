package parquet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	uncompressed = iota
	snappyCodec
	gzipCodec
	_
	brotliCodec
	_
	zstdCodec
	lz4Codec
)

// unpacker decompresses pages, one after the other. The memory of its decoders serves all of them:
// a page of a few bytes could ask for megabytes of it.
type unpacker struct {
	gzip   gzip.Reader
	brotli brotli.Reader
}

// A codec decompresses into memory that may grow to a length, and returns as much of it as the
// result has.
type codec struct {
	// growth is how often as long as a page its result can be.
	growth int64
	unpack func(u *unpacker, memory, from []byte, length int) ([]byte, error)
}

var codecs = map[int64]codec{
	snappyCodec: {22, func(_ *unpacker, memory, from []byte, length int) ([]byte, error) {
		if n, err := snappy.DecodedLen(from); err != nil || n != length {
			return nil, cmp.Or(err, fmt.Errorf("it says itself that it has %d", n))
		}
		return snappy.Decode(grown(memory, length), from)
	}},
	gzipCodec: {pageGrowth, func(u *unpacker, memory, from []byte, length int) ([]byte, error) {
		if err := u.gzip.Reset(bytes.NewReader(from)); err != nil {
			return nil, err
		}
		return fill(memory, &u.gzip, len(from), length)
	}},
	brotliCodec: {pageGrowth, func(u *unpacker, memory, from []byte, length int) ([]byte, error) {
		if err := u.brotli.Reset(bytes.NewReader(from)); err != nil {
			return nil, err
		}
		return fill(memory, &u.brotli, len(from), length)
	}},
	zstdCodec: {pageGrowth, func(_ *unpacker, memory, from []byte, length int) ([]byte, error) {
		d, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		return d.DecodeAll(from, grown(memory, length)[:0:length])
	}},
	lz4Codec: {256, func(_ *unpacker, memory, from []byte, length int) ([]byte, error) {
		memory = grown(memory, length)
		n, err := lz4.UncompressBlock(from, memory)
		return memory[:max(n, 0)], err
	}},
}

// zstdDecoder writes no more than fits where it is to write.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))
})

// fill reads all of an input, which has no more than a length. Memory grows as there is something
// to hold, from what such an input often has.
func fill(memory []byte, from io.Reader, compressed, length int) ([]byte, error) {
	memory = grown(memory, min(length, max(cap(memory), 16*compressed, 512)))
	for n := 0; ; {
		m, err := io.ReadFull(from, memory[n:])
		switch n += m; {
		case err == io.ErrUnexpectedEOF || err == io.EOF:
			return memory[:n], nil
		case err != nil:
			return nil, err
		case n == length:
			var more [1]byte
			if _, err := io.ReadFull(from, more[:]); err != io.EOF {
				return nil, errors.Join(errors.New("it goes on"), err)
			}
			return memory, nil
		}
		memory = append(memory, make([]byte, min(length-n, 3*n))...)
	}
}

// decompress makes of a page what its header says: so many bytes.
func (r *reader) decompress(by int64, content []byte, length int64) ([]byte, error) {
	c, known := codecs[by]
	if !known {
		return nil, fmt.Errorf("it is compressed by codec %d, which is none of Snappy, gzip, Brotli, Zstandard and LZ4_RAW", by)
	}
	if most := min(maxPage, r.left, c.growth*int64(len(content))+pageGround); length < 0 || length > most {
		return nil, fmt.Errorf("it says that it has %d bytes when decompressed, its %d can become %d", length, len(content), most)
	}
	if length == 0 {
		return nil, nil
	}
	r.left -= length
	unpacked, err := c.unpack(&r.unpacker, r.memory[1], content, int(length))
	if err != nil {
		return nil, fmt.Errorf("it cannot be decompressed to %d bytes: %w", length, err)
	}
	if int64(len(unpacked)) != length {
		return nil, fmt.Errorf("it says that it has %d bytes when decompressed, it has %d", length, len(unpacked))
	}
	r.memory[1] = unpacked
	return unpacked, nil
}

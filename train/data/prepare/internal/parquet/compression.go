package parquet

import (
	"bytes"
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

// unpackers decompress, each into memory of the length that its result is to have, and say how long
// it is.
var unpackers = map[int64]func(to, from []byte) (int, error){
	snappyCodec: func(to, from []byte) (int, error) {
		if n, err := snappy.DecodedLen(from); err != nil || n > len(to) {
			return n, err
		}
		decoded, err := snappy.Decode(to, from)
		return len(decoded), err
	},
	gzipCodec: func(to, from []byte) (int, error) {
		r, err := gzip.NewReader(bytes.NewReader(from))
		if err != nil {
			return 0, err
		}
		return fill(to, r)
	},
	brotliCodec: func(to, from []byte) (int, error) { return fill(to, brotli.NewReader(bytes.NewReader(from))) },
	zstdCodec: func(to, from []byte) (int, error) {
		d, err := zstdDecoder()
		if err != nil {
			return 0, err
		}
		decoded, err := d.DecodeAll(from, to[:0:len(to)])
		return len(decoded), err
	},
	lz4Codec: func(to, from []byte) (int, error) { return lz4.UncompressBlock(from, to) },
}

// zstdDecoder writes no more than fits where it is to write.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))
})

// fill reads all of an input, which has no more than there is room for.
func fill(to []byte, from io.Reader) (int, error) {
	n, err := io.ReadFull(from, to)
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	var more [1]byte
	if _, err := io.ReadFull(from, more[:]); err != io.EOF {
		return n, errors.Join(errors.New("it goes on"), err)
	}
	return n, nil
}

// decompress makes of a page what its header says: so many bytes.
func (r *reader) decompress(codec int64, content []byte, length int64) ([]byte, error) {
	unpack := unpackers[codec]
	if unpack == nil {
		return nil, fmt.Errorf("it is compressed by codec %d, which is none of Snappy, gzip, Brotli, Zstandard and LZ4_RAW", codec)
	}
	if most := min(maxPage, r.left, growth*int64(len(content))+ground/16); length < 0 || length > most {
		return nil, fmt.Errorf("it says that it has %d bytes when decompressed, its %d can become %d", length, len(content), most)
	}
	if length == 0 {
		return nil, nil
	}
	r.left -= length
	r.memory[1] = grown(r.memory[1], int(length))
	n, err := unpack(r.memory[1], content)
	if err != nil {
		return nil, fmt.Errorf("it cannot be decompressed to %d bytes: %w", length, err)
	}
	if int64(n) != length {
		return nil, fmt.Errorf("it says that it has %d bytes when decompressed, it has %d", length, n)
	}
	return r.memory[1], nil
}

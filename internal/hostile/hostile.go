// Package hostile makes bad arguments of good ones, as a fuzzer's bytes say: for tests that nothing
// panics on what a caller passes.
package hostile

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Bytes are a fuzzer's. A decision takes one or two of them, or is 0 where there are no more.
type Bytes []byte

// Intn returns a number from 0 to n−1.
func (b *Bytes) Intn(n int) int {
	value := 0
	for range 1 + (n-1)/256 {
		if len(*b) == 0 {
			break
		}
		value = value<<8 + int((*b)[0])
		*b = (*b)[1:]
	}
	return value % n
}

var ints = []int{0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 17, 64, 100, -2, -7, 256, 257, 1000, 513, 4096, 1 << 16, math.MaxInt32, math.MinInt32,
	math.MaxInt32 + 1, 1 << 33, 1 << 40, 1 << 61, 1 << 62, math.MaxInt, math.MaxInt - 1, math.MinInt, math.MaxInt / 2, math.MaxInt/4 + 1, 3037000500}

// Int returns an int that is likely to be wrong somewhere.
func (b *Bytes) Int() int { return ints[b.Intn(len(ints))] }

var floats = []float64{0, 1, -1, 0.5, -0.5, 2, 1e-5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.MaxFloat32,
	1e39, 1e-39, 1e-46, math.SmallestNonzeroFloat64, math.Copysign(0, -1), 1 - 1e-9, 1e5, 1e19, 0.999999, 1 << 53, 65504, 65536}

// Float returns a float64 of the same kind.
func (b *Bytes) Float() float64 { return floats[b.Intn(len(floats))] }

var texts = []string{"", "a", "\x00", "\xff\xfe", "..", "/", "%s%n", "a b", strings.Repeat("x", 300), "\n", "名", "nul\x00nul"}

// Change replaces one part of what values point to: a field, an element, or the whole. A value for
// whose type there is a function in own is changed by it, as a whole.
func Change(b *Bytes, own map[reflect.Type]func(reflect.Value), values ...any) {
	var parts []reflect.Value
	put := map[int]func(){} // of a part inside an interface: puts the changed copy into it
	var list func(v reflect.Value)
	list = func(v reflect.Value) {
		if !v.CanSet() {
			return
		}
		parts = append(parts, v)
		if own[v.Type()] != nil {
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			parts = parts[:len(parts)-1] // its fields are enough
			for i := range v.NumField() {
				list(v.Field(i))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				list(v.Elem())
			}
		case reflect.Slice:
			for i := range min(v.Len(), 8) {
				list(v.Index(i))
			}
		case reflect.Interface:
			if inside := v.Elem(); inside.Kind() == reflect.Struct {
				held := reflect.New(inside.Type()).Elem()
				held.Set(inside)
				first := len(parts)
				list(held)
				for i := first; i < len(parts); i++ {
					inner := put[i]
					put[i] = func() {
						if inner != nil {
							inner()
						}
						v.Set(held)
					}
				}
			}
		}
	}
	for _, value := range values {
		list(reflect.ValueOf(value).Elem())
	}
	if len(parts) == 0 {
		return
	}
	chosen := b.Intn(len(parts))
	part := parts[chosen]
	if change := own[part.Type()]; change != nil {
		change(part)
	} else {
		b.replace(part)
	}
	if put[chosen] != nil {
		put[chosen]()
	}
}

// replace changes a value of one of Go's own kinds.
func (b *Bytes) replace(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(b.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(b.Int()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(b.Float())
	case reflect.String:
		v.SetString(texts[b.Intn(len(texts))])
	case reflect.Slice:
		b.replaceSlice(v)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	default:
		v.SetZero()
	}
}

// replaceSlice leaves a slice without elements, without its last one, or with one more: a copy of
// the last, or a zero.
func (b *Bytes) replaceSlice(v reflect.Value) {
	n := v.Len()
	switch choice := b.Intn(5); {
	case choice == 0:
		v.SetZero()
	case choice == 1:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case choice == 2 && n > 0:
		v.Set(v.Slice(0, n-1))
	case choice == 3 && n > 0:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, n+1), reflect.Append(v, v.Index(n-1))))
	default:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, n+1), reflect.Append(v, reflect.Zero(v.Type().Elem()))))
	}
}

// CallAll calls each method of a value, with those of the given arguments that have its parameters'
// types and zeros for the others, and returns what panicked.
func CallAll(value any, arguments ...any) (panics []string) {
	v := reflect.ValueOf(value)
	for i := range v.NumMethod() {
		method := v.Method(i)
		var in []reflect.Value
		for k := range method.Type().NumIn() {
			of := method.Type().In(k)
			at := slices.IndexFunc(arguments, func(a any) bool { return reflect.TypeOf(a) == of })
			if at < 0 {
				in = append(in, reflect.Zero(of))
			} else {
				in = append(in, reflect.ValueOf(arguments[at]))
			}
		}
		func() {
			defer func() {
				if reason := recover(); reason != nil {
					panics = append(panics, fmt.Sprintf("%T.%s: %v", value, v.Type().Method(i).Name, reason))
				}
			}()
			if method.Type().IsVariadic() {
				method.CallSlice(in)
			} else {
				method.Call(in)
			}
		}()
	}
	return panics
}

// Constructors lists the exported functions of the package in a folder whose names begin with New.
func Constructors(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "New") && !slices.Contains(names, f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names, nil
}

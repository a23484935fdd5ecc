//go:build race

package slow

const race = true

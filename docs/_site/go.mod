module github.com/stheno-ml/stheno/docs/site

go 1.26

require (
	github.com/yuin/goldmark v1.7.13
	golang.org/x/net v0.47.0
)

// Package report is what a run of the benchmarks found: a JSON file with every sample
// ([Report.Save], [Load]), the page that people read ([Report.Markdown]), plots ([Report.Figures]),
// what changed between two runs ([Compare]), and the parts of a README that are made from a report
// ([Fill]).
//
// The JSON file is the whole: everything else is computed from it, and can be again at any time.
package report

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// deadLinks lists the links of a site's pages that lead nowhere: to files that it lacks, or places
// that a page lacks. Other sites are not asked.
func deadLinks(folder string) (faults []string, err error) {
	places, links := map[string]map[string]bool{}, map[string][]string{} // by page
	err = filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		places[at] = map[string]bool{}
		if filepath.Ext(at) != ".html" {
			return nil
		}
		file, err := os.Open(at)
		if err != nil {
			return err
		}
		defer file.Close()
		tree, err := html.Parse(file)
		if err != nil {
			return err
		}
		for n := range tree.Descendants() {
			for _, a := range n.Attr {
				switch a.Key {
				case "id":
					places[at][a.Val] = true
				case "href", "src":
					links[at] = append(links[at], a.Val)
				}
			}
		}
		return nil
	})
	for at, list := range links {
		for _, link := range list {
			u, err := url.Parse(link)
			if err != nil {
				faults = append(faults, fmt.Sprintf("%s: %v", at, err))
				continue
			}
			if u.IsAbs() {
				continue
			}
			to := at
			if u.Path != "" {
				to = filepath.Join(filepath.Dir(at), filepath.FromSlash(u.Path))
			}
			if strings.HasSuffix(u.Path, "/") {
				to = filepath.Join(to, "index.html")
			}
			there, ok := places[to]
			if !ok || u.Fragment != "" && !there[u.Fragment] {
				faults = append(faults, fmt.Sprintf("%s links to %s, which is not there", at, link))
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults), err
}

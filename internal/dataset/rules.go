package dataset

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// The rule of a dataset is about its data, and one who registers the same data under another name would get around it.
// So datasets with the same data share the strictest of their rules: those with the same source, and those of which one
// has the other in it. What two paths on different nodes have in common is not known here; they count as the same.

// rule is where a dataset may be used.
type rule struct {
	place job.Place
	from  id.Dataset // with the same data, whose rule is stricter; "" if its own is
}

// locations returns where the data of a dataset comes from, in a form in which the same place is always the same text.
func (d *Dataset) locations() []string {
	var list []string
	if s, err := ParseSource(d.Source); err == nil {
		switch s.Kind {
		case SourceNone:
		case SourcePath, SourceFile:
			list = append(list, s.At)
		case SourceHTTP:
			list = append(list, httpLocation(s.At))
		}
	}

	for _, c := range d.Copies {
		if !c.Staged && path.IsAbs(c.Path) {
			list = append(list, path.Clean(c.Path))
		}
	}

	slices.Sort(list)

	return slices.Compact(list)
}

// httpLocation returns the host and the path of an address. Schemes, credentials and queries do not tell data apart.
func httpLocation(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}

	host := strings.ToLower(u.Hostname())
	if port := u.Port(); port != "" && port != "80" && port != "443" {
		host += ":" + port
	}

	return host + path.Clean("/"+u.Path)
}

// parents yields a location and all that it lies in.
func parents(location string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for at := location; ; {
			if !yield(at) {
				return
			}

			end := strings.LastIndexByte(at, '/')
			switch {
			case end < 0 || at == "/":
				return
			case end == 0:
				at = "/"
			default:
				at = at[:end]
			}
		}
	}
}

// rulesOf returns the rules of all datasets.
func rulesOf(all []*Dataset) map[id.Dataset]rule {
	rules := make(map[id.Dataset]rule, len(all))
	at := map[string][]*Dataset{}
	locations := make([][]string, len(all))

	for i, d := range all {
		rules[d.ID] = rule{place: d.Rule}

		locations[i] = d.locations()
		for _, l := range locations[i] {
			at[l] = append(at[l], d)
		}
	}

	inherit := func(to, from *Dataset) {
		if to.ID == from.ID {
			return
		}

		was := rules[to.ID]

		next, possible := Narrow(was.place, from.Rule)
		if !possible {
			next = job.PlaceNowhere
		}
		if next != was.place {
			rules[to.ID] = rule{next, from.ID}
		}
	}

	for i, d := range all {
		for _, location := range locations[i] {
			for parent := range parents(location) {
				for _, other := range at[parent] {
					inherit(d, other)

					// A folder has what lies in it; an address does not.
					if parent == location || path.IsAbs(location) {
						inherit(other, d)
					}
				}
			}
		}
	}

	return rules
}

// allRules returns the rules of all datasets. They are never changed.
func (c *Catalogue) allRules() map[id.Dataset]rule {
	if c.rules == nil {
		c.rules = rulesOf(c.List())
	}

	return c.rules
}

// rule returns where a dataset may be used; one that is not registered by its own rule.
func (c *Catalogue) rule(d *Dataset) rule {
	if r, known := c.allRules()[d.ID]; known {
		return r
	}

	return rule{place: d.Rule}
}

// RuleOf returns where a dataset may be used: by its own rule, or by a stricter one of the same data.
func (c *Catalogue) RuleOf(d *Dataset) job.Place { return c.rule(d).place }

// words says where a dataset may be used.
func (r rule) words(name id.Dataset) string {
	same := ""
	if r.from != "" {
		same = fmt.Sprintf(", by the rule of dataset %s, which has the same data", r.from)
	}

	if r.place == job.PlaceNowhere {
		return fmt.Sprintf("dataset %s may be used nowhere%s", name, same)
	}

	return fmt.Sprintf("dataset %s may only be used on %s nodes%s", name, r.place, same)
}

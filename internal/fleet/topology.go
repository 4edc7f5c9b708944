package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// maxPlaces bounds how deep a topology is.
const maxPlaces = 8

// CheckTopology refuses a text that does not say where a machine is: names of places from the outside in, such as
// hall-2/rack-7/switch-1. "" says nothing.
func CheckTopology(text string) error {
	if text == "" {
		return nil
	}

	places := strings.Split(text, "/")
	if len(places) > maxPlaces {
		return fmt.Errorf("must have at most %d places, got %d", maxPlaces, len(places))
	}

	for _, p := range places {
		if p == "" || len(p) > 63 || strings.Trim(strings.ToLower(p), "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return fmt.Errorf("must be names of letters, digits, '-', '_' and '.', separated by '/', from the outside in, "+
				"e.g. hall-2/rack-7; got %q", text)
		}
	}

	return nil
}

// Together chooses n of some machines so that they are near each other, given where each is. It takes them of the
// innermost place that has enough, of several the one with the fewest, so that larger ones stay whole. Otherwise it
// takes them of as few places as it can. It returns their positions, those of one place after each other, and keeps to
// the given order where nothing else decides. There must be n.
func Together(topologies []string, n int) []int {
	paths := make([][]string, len(topologies))
	all := make([]int, len(topologies))

	for i, t := range topologies {
		all[i] = i
		if t != "" {
			paths[i] = strings.Split(t, "/")
		}
	}

	return together(paths, all, 0, n)
}

// together is Together for those of one place at a depth.
func together(paths [][]string, of []int, depth, n int) []int {
	places := placesOf(paths, of, depth)

	var chosen []int
	for len(chosen) < n {
		left := n - len(chosen)

		// The smallest that has enough, otherwise the largest.
		at := 0
		for i := range places {
			a, b := len(places[i]), len(places[at])
			if b < left && a > b || a >= left && b >= left && a < b {
				at = i
			}
		}

		place := places[at]
		places = slices.Delete(places, at, at+1)

		if len(place) == 1 {
			chosen = append(chosen, place...)
		} else {
			chosen = append(chosen, together(paths, place, depth+1, min(left, len(place)))...)
		}
	}

	return chosen
}

// placesOf groups machines by where they are at a depth, in the order of their first ones. One of which that is not
// known is a place of its own.
func placesOf(paths [][]string, of []int, depth int) [][]int {
	var places [][]int
	known := map[string]int{}

	for _, i := range of {
		if depth >= len(paths[i]) {
			places = append(places, []int{i})
			continue
		}

		at, ok := known[paths[i][depth]]
		if !ok {
			at = len(places)
			known[paths[i][depth]] = at
			places = append(places, nil)
		}

		places[at] = append(places[at], i)
	}

	return places
}

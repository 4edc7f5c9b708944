package scenario

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seed must be a non-negative integer, got %q", s)
	}

	return n, nil
}

func parseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}

	d, err := job.ParseDuration(s)

	return time.Duration(d), err
}

// parseLasting reads a length of time that is more than nothing.
func parseLasting(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("duration must be greater than 0, got %q", s)
	}

	return d, err
}

// parseAmount reads a number that is not negative; a sign of money is allowed.
func parseAmount(s string) (float64, error) {
	f, err := strconv.ParseFloat(strings.TrimPrefix(s, "$"), 64)
	if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, fmt.Errorf("amount must be a non-negative number such as 0.30, got %q", s)
	}

	return f, nil
}

// parsePrice reads a price, in dollars for its unit.
func parsePrice[T ~float64](s string) (T, error) {
	f, err := parseAmount(s)
	return T(f), err
}

// parsePositive reads a number above 0.
func parsePositive(s string) (float64, error) {
	f, err := parseAmount(s)
	if err == nil && f == 0 {
		err = fmt.Errorf("amount must be greater than 0, got %q", s)
	}

	return f, err
}

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("count must be a non-negative integer, got %q", s)
	}

	return int(n), nil
}

// list reads values between commas.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(s string) ([]T, error) {
		var all []T
		for part := range strings.SplitSeq(s, ",") {
			v, err := parse(part)
			if err != nil {
				return nil, err
			}

			all = append(all, v)
		}

		return all, nil
	}
}

// oneOf reads one of a few words.
func oneOf[T ~string](words ...T) func(string) (T, error) {
	return func(s string) (T, error) {
		names := make([]string, len(words))
		for i, w := range words {
			if string(w) == s {
				return w, nil
			}

			names[i] = string(w)
		}

		return "", fmt.Errorf("%q is none of %s", s, strings.Join(names, ", "))
	}
}

var series = regexp.MustCompile(`^([^\[\]]*)\[(\d+)\.\.(\d+)\]([^\[\]]*)$`)

// parseNames reads names between commas. A name with a range in brackets stands
// for many: n[1..3] is n1, n2 and n3, and n[01..20] has two digits each.
func parseNames(s string) ([]id.Node, error) {
	var all []id.Node
	for part := range strings.SplitSeq(s, ",") {
		names := []string{part}

		if m := series.FindStringSubmatch(part); m != nil {
			from, err1 := parseCount(m[2])
			to, err2 := parseCount(m[3])
			if err := errors.Join(err1, err2); err != nil || to < from || to-from >= maxNodes {
				return nil, fmt.Errorf("invalid range of names %q: use e.g. n[1..8]", part)
			}

			names = names[:0]
			for n := from; n <= to; n++ {
				names = append(names, fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), n, m[4]))
			}
		}

		for _, n := range names {
			if !id.Name(n) {
				return nil, fmt.Errorf("invalid node name %q: use lower-case letters, digits, '-', '_' and '.'", n)
			}

			all = append(all, id.Node(n))
		}
	}

	return all, nil
}

// parseRates reads how fast a job is: 1:2,2:3.8,4:7 on any GPU, and A100=1:2,2:3.8
// on a kind of GPU.
func parseRates(spread bool) func(string) ([]job.Rate, error) {
	return func(s string) ([]job.Rate, error) {
		kind, points, named := strings.Cut(s, "=")
		if !named {
			kind, points = "", s
		}

		var rates []job.Rate

		for part := range strings.SplitSeq(points, ",") {
			n, speed, ok := strings.Cut(part, ":")
			gpus, err1 := parseCount(n)

			f, err2 := parsePositive(speed)
			if !ok || err1 != nil || err2 != nil || gpus > job.MaxCount {
				return nil, fmt.Errorf(
					"invalid speed %q: give units per second by number of GPUs, e.g. 1:2,2:3.8 or A100=1:2,2:3.8",
					s,
				)
			}

			rates = append(rates, job.Rate{GPU: kind, GPUs: gpus, Spread: spread, PerSecond: f})
		}

		return rates, nil
	}
}

package forecast

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/forecast/match"
)

// number writes a number for people: at most four digits that matter, thousands apart.
func number(v float64) string {
	if a := math.Abs(v); a >= 1e4 && a < 1e12 {
		return thousands(int64(math.Round(v)))
	}
	if a := math.Abs(v); a >= 100 && a < 1e12 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}

	return strconv.FormatFloat(v, 'g', 3, 64)
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}

	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// span writes a length of time for people, by its two greatest units.
func span(seconds float64) string {
	switch {
	case seconds < 10 && seconds != math.Trunc(seconds):
		return strconv.FormatFloat(seconds, 'g', 2, 64) + " s"
	case seconds < 60:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < time.Hour.Seconds():
		return twoUnits(int64(math.Round(seconds)), 60, "min", "s")
	case seconds < 86400:
		return twoUnits(int64(math.Round(seconds/60)), 60, "h", "min")
	}

	return twoUnits(int64(math.Round(seconds/time.Hour.Seconds())), 24, "d", "h")
}

// twoUnits writes an amount in a great and a small unit, without the small one if it is zero.
func twoUnits(amount, great int64, greatName, smallName string) string {
	text := fmt.Sprintf("%d %s", amount/great, greatName)
	if rest := amount % great; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}

	return text
}

// gpus names an allocation: "2× A100".
func gpus(n int, model string) string {
	switch {
	case n == 0:
		return "no GPU"
	case model == "" && n == 1:
		return "1 GPU"
	case model == "":
		return fmt.Sprintf("%d GPUs", n)
	}

	return fmt.Sprintf("%d× %s", n, model)
}

// names lists the jobs that a job was compared with, the first three by name.
func names(like []match.Neighbour) string {
	var list []string
	for i := range like[:min(len(like), 3)] {
		if name := string(like[i].Job); name != "" {
			list = append(list, name)
		}
	}

	if len(list) == 0 {
		return ""
	}

	text := strings.Join(list, ", ")
	if len(like) > len(list) {
		text += " …"
	}

	return " (" + text + ")"
}

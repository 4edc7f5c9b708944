package lines

import (
	"strings"

	"trainyard/internal/agent/metrics/reading"
)

// grouped parses a number that begins at i and contains a comma or an underscore: 1,234.5 and 10_000 in groups of
// three digits, and 0,512 and 1.234,5 with a decimal comma. Three digits after a single comma are a group, unless a
// zero is before the comma. It reports whether there was such a number.
func grouped(line string, i int) (t token, end int, ok bool) {
	begin := i

	if line[i] == '-' || line[i] == '+' {
		i++
	}

	first := digits(line, i)
	if first == i || first >= len(line) {
		return t, 0, false
	}

	sep := line[first]
	end, groups := groupsEnd(line, first, sep)

	point := byte('.')
	switch {
	case sep == ',' && groups > 0 && line[i] != '0' && first-i <= 3:
	case sep == '_' && groups > 0 && first-i <= 3:
	case sep == '.' && groups > 0 && first-i <= 3 && decimalComma(line, end):
		point = ','
	case sep == ',' && decimalComma(line, first): // 0,512
		end, point = first, ','
	default:
		return t, 0, false
	}

	if end+1 < len(line) && line[end] == point && isDigit(line[end+1]) {
		end = digits(line, end+1)
	}

	plain := strings.NewReplacer(",", "", "_", "")
	if point == ',' {
		plain = strings.NewReplacer(".", "", ",", ".")
	}

	t = token{kind: number, text: line[begin:end]}
	v, parsed := reading.Parse(plain.Replace(t.text))
	t.value, t.unit = v, !parsed
	t, end = afterNumber(t, line, end)

	return t, end, true
}

// groupsEnd returns the end of groups of three digits, each behind the same separator, and how many
// groups there are.
func groupsEnd(line string, i int, sep byte) (end, groups int) {
	for i < len(line) && line[i] == sep && digits(line, i+1) == i+4 {
		i, groups = i+4, groups+1
	}

	return i, groups
}

// decimalComma reports whether there is a comma with a fraction at i that is not part of a list.
func decimalComma(line string, i int) bool {
	if i >= len(line) || line[i] != ',' {
		return false
	}

	end := digits(line, i+1)

	return end > i+1 &&
		(end == len(line) || strings.IndexByte(",._", line[end]) < 0 || end+1 < len(line) && line[end] != '_' &&
			!isDigit(line[end+1]))
}

// digits returns the end of the digits that begin at i.
func digits(line string, i int) int {
	for i < len(line) && isDigit(line[i]) {
		i++
	}

	return i
}

package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/money"
)

// UnitError says that a text is not a value of one of the units of job files.
type UnitError struct {
	Message string // follows the name of the field: must be a duration, got "6"
	Remedy  string // write a number and a unit, e.g. 90s, 10m, 6h or 2d
}

// Error is the whole sentence, for a caller that cannot name the field.
func (e *UnitError) Error() string { return "value " + e.Message + "; " + e.Remedy }

// unitError makes a UnitError of what a value must be, what was given and what to do.
func unitError(constraint, given, remedy string) error {
	return &UnitError{Message: fmt.Sprintf("must be %s, got %q", constraint, given), Remedy: remedy}
}

// Bytes is an amount of memory. It is written with a unit: 24GB, 512MiB.
// As usual for GPUs GB means GiB: a GPU sold as 80GB has 80 GiB.
type Bytes int64

const (
	kib Bytes = 1 << 10
	mib Bytes = 1 << 20
	gib Bytes = 1 << 30
	tib Bytes = 1 << 40
)

// byteUnits is searched in order: longer names first.
var byteUnits = []struct {
	name string
	size Bytes
}{
	{"kib", kib}, {"mib", mib}, {"gib", gib}, {"tib", tib},
	{"kb", kib}, {"mb", mib}, {"gb", gib}, {"tb", tib},
	{"k", kib}, {"m", mib}, {"g", gib}, {"t", tib}, {"b", 1},
}

// ParseBytes reads 24GB, 1.5 GiB, 512MB or 100b.
func ParseBytes(s string) (Bytes, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}

		f, err := parsePlain(number)
		if err != nil || f*float64(u.size) >= math.MaxInt64 {
			break
		}

		return Bytes(math.Round(f * float64(u.size))), nil
	}

	return 0, unitError("a memory size", s, "write a number and a unit, e.g. 24GB or 512MB")
}

// parsePlain reads a number of digits and at most one point: no sign, exponent, hexadecimal or infinity.
func parsePlain(s string) (float64, error) {
	s = strings.TrimSpace(s)
	for _, c := range s {
		if (c < '0' || c > '9') && c != '.' {
			return 0, strconv.ErrSyntax
		}
	}

	return strconv.ParseFloat(s, 64)
}

// String writes the amount in the largest unit that keeps it exact.
func (b Bytes) String() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TB", tib}, {"GB", gib}, {"MB", mib}, {"KB", kib}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}

	return strconv.FormatInt(int64(b), 10) + "B"
}

// Short writes the amount for people, rounded: 15.6GB.
func (b Bytes) Short() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TB", tib}, {"GB", gib}, {"MB", mib}, {"KB", kib}} {
		if b >= u.size {
			s := strconv.FormatFloat(float64(b)/float64(u.size), 'f', 1, 64)
			return strings.TrimSuffix(s, ".0") + u.name
		}
	}

	return b.String()
}

// MarshalText writes the amount as it is written in a job file.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	*b = v
	return err
}

// Duration is a duration. It is written with units: 90s, 6h, 1d12h.
type Duration time.Duration

// ParseDuration reads 90s, 10m, 6h, 1h30m, 2d or 1w.
func ParseDuration(s string) (Duration, error) {
	rest := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), " ", ""))
	if rest == "" {
		return 0, badDuration(s)
	}

	var total Duration

	for rest != "" {
		n := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
		if n <= 0 {
			return 0, badDuration(s)
		}

		f, err := parsePlain(rest[:n])
		if err != nil {
			return 0, badDuration(s)
		}

		size, after, ok := cutTimeUnit(rest[n:])
		if !ok || f*float64(size)+float64(total) >= math.MaxInt64 {
			return 0, badDuration(s)
		}

		whole, part := math.Modf(f) // converted separately, so that long durations stay exact
		total += Duration(whole)*Duration(size) + Duration(math.Round(part*float64(size)))
		rest = after
	}

	return total, nil
}

// cutTimeUnit returns the length of the unit that s begins with, and what follows: nothing or another number.
func cutTimeUnit(s string) (size time.Duration, after string, ok bool) {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
		{"w", 7 * 24 * time.Hour}} {
		after, ok = strings.CutPrefix(s, u.name)
		if ok && (after == "" || after[0] >= '0' && after[0] <= '9') {
			return u.size, after, true
		}
	}

	return 0, "", false
}

func badDuration(s string) error {
	return unitError("a duration", s, "write a number and a unit, e.g. 90s, 10m, 6h or 2d")
}

// String writes the duration as in a job file.
func (d Duration) String() string {
	if d < 0 {
		return "-" + (-d).String()
	}
	if d == 0 {
		return "0s"
	}

	var out strings.Builder

	rest := time.Duration(d)
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := rest / u.size; n > 0 {
			out.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			rest -= n * u.size
		}
	}

	if ms := rest.Milliseconds(); ms > 0 || out.Len() == 0 { // less than a millisecond is shown as 0ms
		out.WriteString(strconv.FormatInt(ms, 10) + "ms")
	}

	return out.String()
}

// MarshalText writes the duration as in a job file.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	*d = v
	return err
}

// Money is an amount in millionths of a dollar. It is written $40 or $1.25.
type Money int64

// ParseMoney reads $40, $1.25 or 40.
func ParseMoney(s string) (Money, error) {
	m, ok := parseMicros(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s), "$")))
	if !ok {
		return 0, unitError("an amount of money", s, "write it as $40 or $1.25")
	}

	return m, nil
}

// moneyDecimals is the number of decimals of an amount in dollars.
const moneyDecimals = 6

// parseMicros reads a decimal number of dollars exactly, digit by digit: through a float64 an
// amount above some billions would be a millionth off. Further decimals are rounded.
func parseMicros(s string) (Money, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	if whole+fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, false
	}

	carry := uint64(0)
	if len(fraction) > moneyDecimals {
		if fraction[moneyDecimals] >= '5' {
			carry = 1
		}

		fraction = fraction[:moneyDecimals]
	}

	fraction += strings.Repeat("0", moneyDecimals-len(fraction))

	micros, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil || micros+carry > math.MaxInt64 {
		return 0, false
	}

	return Money(micros + carry), true
}

// Amount returns it for calculations.
func (m Money) Amount() money.Amount { return money.Micros(m) }

// PerHour returns it as the price of an hour, where that is what it stands for.
func (m Money) PerHour() money.PerHour { return money.HourlyMicros(m) }

// String writes the amount with as many decimals as it needs.
func (m Money) String() string {
	sign, micros := "", uint64(m)
	if m < 0 {
		sign, micros = "-", -uint64(m)
	}

	text := fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)

	return "$" + sign + strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalText writes the amount as in a job file.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (m *Money) UnmarshalText(text []byte) error {
	v, err := ParseMoney(string(text))
	*m = v
	return err
}

// Range is a number or an interval of numbers: 4, 1..8, 2.. (no upper end: Max is 0).
type Range struct{ Min, Max int }

// ParseRange reads 4, 1..8, 2.., ..8 (from 1) or 4+.
func ParseRange(s string) (Range, error) {
	text := strings.TrimSpace(s)
	if n, ok := strings.CutSuffix(text, "+"); ok {
		text = n + ".."
	}

	lo, hi, isRange := strings.Cut(text, "..")
	lo, hi = strings.TrimSpace(lo), strings.TrimSpace(hi)
	if !isRange {
		hi = lo
	}

	if lo == "" && hi == "" {
		return Range{}, badRange(s)
	}

	r := Range{Min: 1}

	var err error
	if lo != "" {
		r.Min, err = parseCount(lo)
		if err != nil {
			return Range{}, badRange(s)
		}
	}

	if hi != "" {
		r.Max, err = parseCount(hi)
		if err != nil {
			return Range{}, badRange(s)
		}
		if r.Max < r.Min {
			return Range{}, unitError("a range", s, "the first number must not be greater than the second")
		}
	}

	return r, nil
}

func badRange(s string) error {
	return unitError("a count", s, "write a number or a range, e.g. 4, 1..8 or 2..")
}

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// String writes the range as in a job file.
func (r Range) String() string {
	switch {
	case r.Max == 0 && r.Min == 0:
		return "0"
	case r.Max == 0:
		return strconv.Itoa(r.Min) + ".."
	case r.Min == r.Max:
		return strconv.Itoa(r.Min)
	}

	return strconv.Itoa(r.Min) + ".." + strconv.Itoa(r.Max)
}

// MarshalText writes the range as in a job file.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Range) UnmarshalText(text []byte) error {
	v, err := ParseRange(string(text))
	*r = v
	return err
}

// ByteRange is an interval of amounts of memory: 24GB..80GB, 24GB.. (Max is 0), 24GB (at least).
type ByteRange struct{ Min, Max Bytes }

// ParseByteRange reads 24GB.., 24GB..80GB, ..80GB, 24GB+ or 24GB, which means at least 24GB.
func ParseByteRange(s string) (ByteRange, error) {
	text := strings.TrimSuffix(strings.TrimSpace(s), "+")
	lo, hi, _ := strings.Cut(text, "..")
	lo, hi = strings.TrimSpace(lo), strings.TrimSpace(hi)
	var r ByteRange
	var err error

	if lo == "" && hi == "" {
		return r, unitError("a range of memory sizes", s, "write it as 24GB.. or 24GB..80GB")
	}

	if lo != "" {
		r.Min, err = ParseBytes(lo)
		if err != nil {
			return ByteRange{}, err
		}
	}

	if hi != "" {
		r.Max, err = ParseBytes(hi)
		if err != nil {
			return ByteRange{}, err
		}
		if r.Max < r.Min {
			return ByteRange{}, unitError("a range", s, "the first size must not be greater than the second")
		}
	}

	return r, nil
}

// String writes the range as in a job file.
func (r ByteRange) String() string {
	if r.Max == 0 {
		return r.Min.String() + ".."
	}

	return r.Min.String() + ".." + r.Max.String()
}

// MarshalText writes the range as in a job file.
func (r ByteRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *ByteRange) UnmarshalText(text []byte) error {
	v, err := ParseByteRange(string(text))
	*r = v
	return err
}

// CPUs is an amount of processor, in thousandths of a core. It is written 8 or 0.5.
type CPUs int64

// ParseCPUs reads 8 or 0.5.
func ParseCPUs(s string) (CPUs, error) {
	f, err := parsePlain(s)
	if err != nil || f > 1e6 {
		return 0, unitError("a number of CPUs", s, "write it as 8 or 0.5")
	}

	return CPUs(math.Round(f * 1000)), nil
}

// String writes the amount as in a job file.
func (c CPUs) String() string { return strconv.FormatFloat(float64(c)/1000, 'f', -1, 64) }

// MarshalText writes the amount as in a job file.
func (c CPUs) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *CPUs) UnmarshalText(text []byte) error {
	v, err := ParseCPUs(string(text))
	*c = v
	return err
}

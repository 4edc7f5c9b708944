package money_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/money"
)

// near reports whether a figure is an exact number, up to what a float64 cannot hold.
func near(t interface{ Fatalf(string, ...any) }, what string, got float64, want *big.Rat) {
	exact, _ := want.Float64()
	if math.Abs(got-exact) > 1e-9*math.Max(1, math.Abs(exact)) {
		t.Fatalf("%s is %g, want %g", what, got, exact)
	}
}

func rat(f float64) *big.Rat { return new(big.Rat).SetFloat64(f) }

func times(list ...*big.Rat) *big.Rat {
	product := big.NewRat(1, 1)
	for _, r := range list {
		product.Mul(product, r)
	}

	return product
}

// TestConversionsAreThoseOfTheUnits holds each conversion against fractions that are worked out
// here, with the numbers of seconds, watts and micros written out.
func TestConversionsAreThoseOfTheUnits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := rapid.Float64Range(0, 1e5).Draw(t, "price")
		seconds := rapid.Int64Range(0, 1e8).Draw(t, "seconds")
		gpus := rapid.IntRange(1, 64).Draw(t, "gpus")
		part := rapid.Float64Range(0.001, 64).Draw(t, "part")
		watts := rapid.Float64Range(0, 1e5).Draw(t, "watts")
		micros := rapid.Int64Range(0, 1e15).Draw(t, "micros")
		bytes := rapid.Int64Range(0, 1e15).Draw(t, "bytes")

		lasts := time.Duration(seconds) * time.Second
		hourly := money.PerHour(price)
		inHours := big.NewRat(seconds, 3600)

		near(t, "an hourly price for a time", float64(hourly.For(lasts)), times(rat(price), inHours))
		near(t, "a price per second for a time", float64(hourly.PerSecond().For(float64(seconds))), times(rat(price), inHours))
		near(t, "there and back", float64(hourly.PerSecond().PerHour()), rat(price))
		near(t, "per GPU", float64(hourly.PerGPU(gpus)), times(rat(price), big.NewRat(1, int64(gpus))))
		near(t, "per GPU and of all of them", float64(hourly.PerGPU(gpus).Of(float64(gpus))), rat(price))
		near(t, "of a share of a GPU", float64(hourly.EachOf(part).Of(part)), rat(price))
		near(t, "per GPU-second", float64(hourly.PerGPU(gpus).PerSecond().Of(float64(gpus)).For(float64(seconds))),
			times(rat(price), inHours))
		near(t, "energy", float64(money.PerKWh(price).Drawing(watts).For(lasts)),
			times(rat(price), rat(watts), big.NewRat(1, 1000), inHours))
		near(t, "millionths", float64(money.Micros(micros)), big.NewRat(micros, 1_000_000))
		near(t, "a transfer", float64(money.PerGB(price).Moving(bytes)), times(rat(price), big.NewRat(bytes, 1_000_000_000)))

		if got := money.Micros(micros).Micros(); got != micros {
			t.Fatalf("%d millionths come back as %d", micros, got)
		}
	})
}

// TestAnAmountLastsAsLongAsItPaysFor: what a time costs pays for that time.
func TestAnAmountLastsAsLongAsItPaysFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price := money.PerHour(rapid.Float64Range(0.0001, 1e5).Draw(t, "price"))
		lasts := time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "seconds")) * time.Second

		if got := price.For(lasts).Lasts(price); (got - lasts).Abs() > time.Millisecond {
			t.Fatalf("what %s costs lasts for %s", lasts, got)
		}

		if got := price.For(lasts).Over(lasts); lasts > 0 && math.Abs(float64(got-price)) > 1e-9*float64(price) {
			t.Fatalf("what %s costs is %g an hour, want %g", lasts, got, price)
		}
	})

	for name, got := range map[string]time.Duration{
		"nothing costs anything":  money.Amount(1).Lasts(0),
		"longer than can be said": money.Amount(1e30).Lasts(1e-9),
	} {
		if got != math.MaxInt64 {
			t.Errorf("%s: it lasts for %s, want for ever", name, got)
		}
	}

	if got := money.Amount(-1).Lasts(1); got != 0 {
		t.Errorf("a debt lasts for %s", got)
	}
}

// TestFormsAreThoseOfNumbers: what is stored and sent looks as it did before prices had types.
func TestFormsAreThoseOfNumbers(t *testing.T) {
	t.Parallel()

	type record struct {
		Amount money.Amount    `json:"amount"`
		Hourly []money.PerHour `json:"hourly,omitempty"`
		Energy money.PerKWh    `json:"energy"`
	}

	text, err := json.Marshal(record{Amount: 0.1, Hourly: []money.PerHour{1.25, 3}, Energy: 0.3})
	if want := `{"amount":0.1,"hourly":[1.25,3],"energy":0.3}`; err != nil || string(text) != want {
		t.Errorf("got %s (%v), want %s", text, err, want)
	}
}

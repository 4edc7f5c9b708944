// Package money is amounts of money and prices, each with its unit as its type: an amount in
// dollars, and prices per hour, per second, per GPU-hour, per GPU-second, per
// kilowatt-hour and per gigabyte.
//
// A price becomes an amount, or a price of another unit, by a method that names what it takes;
// the compiler refuses to add a price to an amount or an hourly price to one per second. Amounts
// that people write are exact and stay job.Money; what the ledger posts is exact and stays
// ledger.Nanos.
package money

import (
	"math"
	"time"
)

// Amount is an amount of money, in dollars.
type Amount float64

// PerHour is a price in dollars for an hour.
type PerHour float64

// PerSecond is a price in dollars for a second.
type PerSecond float64

// PerGPUHour is the price of one GPU in dollars for an hour.
type PerGPUHour float64

// PerGPUSecond is the price of one GPU in dollars for a second.
type PerGPUSecond float64

// PerKWh is the price of energy, in dollars for a kilowatt-hour.
type PerKWh float64

// PerGB is the price of moving data, in dollars for a gigabyte.
type PerGB float64

const (
	microsPerDollar = 1e6
	secondsPerHour  = float64(time.Hour / time.Second)
	wattsPerKW      = 1000
	bytesPerGB      = 1e9
)

// Micros returns an amount that is given in millionths of a dollar.
func Micros[T ~int64](n T) Amount { return Amount(float64(n) / microsPerDollar) }

// HourlyMicros returns a price for an hour that is given in millionths of a dollar.
func HourlyMicros[T ~int64](n T) PerHour { return PerHour(float64(n) / microsPerDollar) }

// Micros returns the amount in millionths of a dollar, rounded.
func (a Amount) Micros() int64 { return int64(math.Round(float64(a) * microsPerDollar)) }

// Times returns the amount so many times, or a share of it.
func (a Amount) Times(n float64) Amount { return a * Amount(n) }

// Lasts returns how long an amount pays for at a price: for ever if the price is 0.
func (a Amount) Lasts(p PerHour) time.Duration {
	const forever = time.Duration(math.MaxInt64)

	if a <= 0 {
		return 0
	}

	d := float64(a) / float64(p) * float64(time.Hour)
	if d >= float64(forever) || p <= 0 {
		return forever
	}

	return time.Duration(d)
}

// Over returns the price at which a duration costs the amount.
func (a Amount) Over(d time.Duration) PerHour { return PerHour(float64(a) / d.Hours()) }

// For returns what a duration costs.
func (p PerHour) For(d time.Duration) Amount { return Amount(float64(p) * d.Hours()) }

// Times returns the price of n of what it is the price of, or of a share of it.
func (p PerHour) Times(n float64) PerHour { return p * PerHour(n) }

// PerGPU returns the price of one GPU of a node with n of them: that of the node if it has none.
func (p PerHour) PerGPU(n int) PerGPUHour { return PerGPUHour(float64(p) / float64(max(n, 1))) }

// EachOf returns the price of one GPU if this is that of n of them, or of a share of one.
func (p PerHour) EachOf(n float64) PerGPUHour { return PerGPUHour(float64(p) / n) }

// PerSecond returns the price of a second.
func (p PerHour) PerSecond() PerSecond { return PerSecond(float64(p) / secondsPerHour) }

// PerHour returns the price of an hour.
func (p PerSecond) PerHour() PerHour { return PerHour(float64(p) * secondsPerHour) }

// For returns what a number of seconds costs.
func (p PerSecond) For(seconds float64) Amount { return Amount(float64(p) * seconds) }

// Times returns the price of n of what it is the price of, or of a share of it.
func (p PerSecond) Times(n float64) PerSecond { return p * PerSecond(n) }

// EachOf returns the price of one GPU if this is that of n of them, or of a share of one.
func (p PerSecond) EachOf(n float64) PerGPUSecond { return PerGPUSecond(float64(p) / n) }

// Of returns the price of n GPUs, or of a share of one.
func (p PerGPUHour) Of(n float64) PerHour { return PerHour(float64(p) * n) }

// PerSecond returns the price of a second of a GPU.
func (p PerGPUHour) PerSecond() PerGPUSecond { return PerGPUSecond(float64(p) / secondsPerHour) }

// Times returns so many times the price.
func (p PerGPUHour) Times(n float64) PerGPUHour { return p * PerGPUHour(n) }

// Of returns the price of n GPUs, or of a share of one.
func (p PerGPUSecond) Of(n float64) PerSecond { return PerSecond(float64(p) * n) }

// Times returns so many times the price.
func (p PerGPUSecond) Times(n float64) PerGPUSecond { return p * PerGPUSecond(n) }

// Drawing returns the price of an hour in which so many watts are drawn.
func (p PerKWh) Drawing(watts float64) PerHour { return PerHour(watts / wattsPerKW * float64(p)) }

// Moving returns what moving so many bytes costs.
func (p PerGB) Moving(bytes int64) Amount { return Amount(float64(bytes) / bytesPerGB * float64(p)) }

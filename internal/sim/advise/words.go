package advise

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// dollars writes money as people read it: cents for little, none for much.
func dollars(f float64) string {
	switch f = math.Abs(f); {
	case math.IsInf(f, 0):
		return "no end of money"
	case f >= 100:
		return fmt.Sprintf("$%.0f", f)
	}
	return fmt.Sprintf("$%.2f", f)
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*math.Abs(f)) }

// lasting writes a length of time in its two largest units.
func lasting(seconds float64) string {
	d := time.Duration(math.Abs(seconds) * float64(time.Second)).Round(time.Second)
	switch {
	case d >= day:
		return fmt.Sprintf("%dd %dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// paid says in how many weeks or days a change saved money.
func paid(s Sure) string {
	return fmt.Sprintf("it would have paid in %d of %s", s.Paid, count(s.Of, s.Unit))
}

// sentence says what a change comes to, and after that why it is thought so of it.
func sentence(a *Advice, why string) string {
	var b strings.Builder
	switch {
	case a.Saved > 0:
		fmt.Fprintf(&b, "%s: saves %s a month", a.What, dollars(a.Saved))
	case a.Saved < 0:
		fmt.Fprintf(&b, "%s: adds %s a month", a.What, dollars(a.Saved))
	default:
		fmt.Fprintf(&b, "%s: costs the same", a.What)
	}
	switch {
	case a.OnDemand >= 1:
		fmt.Fprintf(&b, ", with %.0f fewer hours of on-demand nodes", a.OnDemand)
	case a.OnDemand <= -1:
		fmt.Fprintf(&b, ", with %.0f more hours of on-demand nodes", -a.OnDemand)
	}
	switch {
	case a.Mean <= -1:
		fmt.Fprintf(&b, "; jobs end %s sooner on average", lasting(a.Mean))
	case a.Mean >= 1:
		fmt.Fprintf(&b, "; jobs end %s later on average", lasting(a.Mean))
	default:
		b.WriteString("; jobs end as soon as before")
	}
	if a.Taken > 0 {
		fmt.Fprintf(&b, "; %s lost in the period", count(a.Taken, "spot node"))
	}
	if a.Saved > 0 {
		b.WriteString("; " + paid(a.Sure))
	}
	if why != "" {
		b.WriteString("; " + why)
	}
	if a.BreakEven != nil {
		fmt.Fprintf(&b, "; %s", a.worthBelow())
	}
	return b.String()
}

// worthBelow says at which price having the node pays.
func (a *Advice) worthBelow() string {
	verb := "the node is worth it"
	if a.Kind == DropNode {
		verb = "keeping it is worth it"
	}
	text := fmt.Sprintf("%s below $%.2f/h", verb, *a.BreakEven)
	switch a.Priced {
	case "":
	case noPrice:
		text += ", and " + noPrice
	default:
		text += fmt.Sprintf(", and it was reckoned with $%.2f/h (%s)", *a.Price, a.Priced)
	}
	return text
}

// noPrice is what is said of a node of which the tariff says nothing.
const noPrice = "nobody told what it costs"

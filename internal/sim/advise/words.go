package advise

import (
	"fmt"
	"math"
	"strings"

	"trainyard/internal/humanize"
)

// dollars writes an amount of money without its sign, which the sentence around it expresses.
func dollars(f float64) string { return humanize.Dollars(math.Abs(f)) }

// percent writes a share without its sign.
func percent(f float64) string { return humanize.Percent(math.Abs(f)) }

// duration writes a length of time without its sign.
func duration(seconds float64) string { return humanize.Seconds(math.Abs(seconds)) }

// payback says in how many weeks or days a change saved money.
func payback(s Confidence) string {
	return fmt.Sprintf("it would have paid off in %d of %s", s.PaidOff, humanize.Count(s.Of, s.Unit))
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
		fmt.Fprintf(&b, "; jobs finish %s earlier on average", duration(a.Mean))
	case a.Mean >= 1:
		fmt.Fprintf(&b, "; jobs finish %s later on average", duration(a.Mean))
	default:
		b.WriteString("; jobs finish at the same time")
	}

	if a.SpotLosses > 0 {
		fmt.Fprintf(&b, "; %s lost in the period", humanize.Count(a.SpotLosses, "spot node"))
	}

	if a.Saved > 0 {
		b.WriteString("; " + payback(a.Confidence))
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

	text := fmt.Sprintf("%s below %s", verb, humanize.Rate(*a.BreakEven))

	switch a.Priced {
	case "":
	case noPrice:
		text += "; " + noPrice
	default:
		text += fmt.Sprintf("; the comparison assumes %s (%s)", humanize.Rate(*a.Price), a.Priced)
	}

	return text
}

// noPrice stands for the price of a node that the tariff does not have.
const noPrice = "its current price is unknown"

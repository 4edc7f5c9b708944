package andreas

import "trainyard/test/bench/information"

// objective is what everybody in the ANDREAS experiments tries for.
const objective = "energy and lateness in money"

// Comparisons says what each side is told. The tables of speeds and powers come with the jobs, as the published
// rule has them; FIFO, EDF and PS read them only to choose the GPUs of the job whose turn it is.
func Comparisons() []information.Comparison {
	return []information.Comparison{Compare("bench-andreas")}
}

// Compare is the comparison of this benchmark, and under another name that of test/bench/datacenter.
func Compare(name string) information.Comparison {
	tables := information.Told{
		Work: information.Declared, RunTimes: information.Declared, Speeds: information.Declared,
	}

	clairvoyant := information.Told{
		Work: information.Declared, RunTimes: information.Declared, Speeds: information.Declared,
		Arrivals: information.Oracle,
	}

	sides := []information.Side{
		{Name: "andreas", Role: information.Headline, Told: tables, Objective: objective},
		{Name: "published", Role: information.Opponent, Told: tables, Objective: objective},
		{Name: "FIFO, EDF, PS", Role: information.Opponent, Told: tables, Objective: "an order of the queue"},
		{Name: "bound", Told: clairvoyant, Objective: objective},
	}

	return information.Comparison{
		Name: name, Sides: sides,
		Differs: "FIFO, EDF and PS take jobs by arrival, deadline or price of lateness, with the published rule's choice " +
			"of GPUs; all are judged by the same cost.",
	}
}

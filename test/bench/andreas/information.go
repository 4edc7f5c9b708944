package andreas

import "trainyard/test/bench/information"

// objective is what everybody in the ANDREAS experiments tries for.
const objective = "energy and lateness in money"

// Comparisons says what each side knows. The tables of speeds and powers come with the jobs, as the published
// rule has them; FIFO, EDF and PS read them only to choose the GPUs of the job whose turn it is.
func Comparisons() []information.Comparison {
	return []information.Comparison{Compare("bench-andreas")}
}

// Compare is the comparison of this benchmark, and under another name that of test/bench/datacenter.
func Compare(name string) information.Comparison {
	tables := information.Knowledge{
		Work: information.Declared, RunTimes: information.Declared, Speeds: information.Declared,
	}

	clairvoyant := information.Knowledge{
		Work: information.Declared, RunTimes: information.Declared, Speeds: information.Declared,
		Arrivals: information.Oracle,
	}

	sides := []information.Side{
		{Name: "andreas", Role: information.Headline, Knowledge: tables, Objective: objective},
		{Name: "published", Role: information.Opponent, Knowledge: tables, Objective: objective},
		{Name: "FIFO, EDF, PS", Role: information.Opponent, Knowledge: tables, Objective: "an order of the queue"},
		{Name: "bound", Knowledge: clairvoyant, Objective: objective},
	}

	return information.Comparison{
		Name: name, Sides: sides,
		Differs: "FIFO, EDF and PS take jobs by arrival, deadline or price of lateness, with the published rule's choice " +
			"of GPUs; all are judged by the same cost.",
	}
}

package sql

import (
	"fmt"
	"slices"
	"strings"
)

// selection is a list of rows by their numbers: those that meet all conditions and, of each set of alternatives, one.
type selection struct {
	table  *table // whose columns are read
	from   string // where the rows are looked for
	number string // column of their numbers, by which they are listed
	newest bool   // the greatest first
	always []condition
	choice [][]condition
	found  bool // one of the conditions finds the rows
	none   bool // it is known that no row meets the conditions
	limit  int
}

func (l *selection) must(term string, args ...any) {
	l.always = append(l.always, condition{term, args})
}

// mustOne adds that one of the conditions is true, if there are any.
func (l *selection) mustOne(list []condition) {
	if len(list) > 0 {
		l.always = append(l.always, either(list))
	}
}

// choose adds alternatives, if there are any.
func (l *selection) choose(list []condition) {
	if len(list) > 0 {
		l.choice = append(l.choice, list)
	}
}

// find adds that a column has a value. The first of these conditions is the one by which the rows are found; for it
// more is added, which the index may need.
func (l *selection) find(column, more, value string) {
	c := equals(column, l.found, value)
	if more != "" {
		c.term += " AND " + more
	}

	l.always = append(l.always, c)
	l.found = true
}

// equals is true if a column has a value. It may be hidden from the database that this is so, in order that it looks
// for the rows by something else: without statistics it takes one index to be as good as another.
func equals(column string, hide bool, value string) condition {
	if hide {
		column += " || ''"
	}

	return condition{column + " = ?", []any{value}}
}

// maxBranches bounds how many combinations of alternatives are looked up one by one.
const maxBranches = 32

// query writes the query. No index has the rows of several alternatives in the order of their numbers, so a database
// would sort all of them, or go through the whole table. Therefore the first rows of each combination are looked up,
// and the first of these are taken: that costs what is listed, however many rows there are.
func (l *selection) query() (string, []any, error) {
	if err := needLimit(l.limit); err != nil {
		return "", nil, err
	}

	combinations := l.combinations()
	order := l.number
	if l.newest {
		order += " DESC"
	}

	if len(combinations) == 1 {
		var w where
		w.addAll(combinations[0])

		query, err := w.query("SELECT "+l.table.list(l.table.name+".")+l.from, order, l.limit)

		return query, w.args, err
	}

	args := []any{int64(l.limit)}
	branches := make([]string, len(combinations))

	for i, conditions := range combinations {
		w := where{args: args}
		w.addAll(conditions)

		branches[i] = fmt.Sprintf("SELECT num FROM (SELECT %s AS num%s%sORDER BY %s LIMIT $1) AS branch%d",
			l.number, l.from, w.conditions(), order, i)
		args = w.args
	}

	key := l.table.name + "." + l.table.key
	order = strings.Replace(order, l.number, key, 1)

	return fmt.Sprintf("SELECT %s FROM %s WHERE %s IN (%s) ORDER BY %s LIMIT $1", l.table.list(l.table.name+"."),
		l.table.name, key, strings.Join(branches, " UNION ALL "), order), args, nil
}

// combinations returns the conditions of each combination of alternatives. If there are too many, alternatives become
// one condition.
func (l *selection) combinations() [][]condition {
	all := [][]condition{l.always}

	for _, choice := range l.choice {
		if len(all)*len(choice) > maxBranches {
			choice = []condition{either(choice)}
		}

		var next [][]condition
		for _, conditions := range all {
			for _, c := range choice {
				next = append(next, append(slices.Clone(conditions), c))
			}
		}

		all = next
	}

	return all
}

// either is true if one of the conditions is.
func either(list []condition) condition {
	terms := make([]string, len(list))
	var args []any
	for i, c := range list {
		terms[i] = c.term
		args = append(args, c.args...)
	}

	return condition{"(" + strings.Join(terms, " OR ") + ")", args}
}

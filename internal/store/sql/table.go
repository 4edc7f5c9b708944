package sql

import (
	"context"
	"slices"
	"strings"
)

// table describes how rows of one kind are written.
type table struct {
	name    string
	key     string   // columns of the primary key
	columns []string // all columns, in the order in which they are written and read
	fixed   []string // columns that never change after the first write
	frozen  bool     // rows that never change at all
	unless  string   // rows of which this is true are not removed
	guard   bool     // a row is replaced only by one with the same or a greater seq
}

// selects returns the beginning of a query for whole rows.
func (t *table) selects() string { return "SELECT " + t.list("") + " FROM " + t.name + " " }

// list returns the names of the columns, each with the prefix.
func (t *table) list(prefix string) string {
	return prefix + strings.Join(t.columns, ", "+prefix)
}

// insert returns the statement that writes a number of rows.
func (t *table) insert(rows int, mark func(int) string) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + t.name + " (" + t.list("") + ") VALUES ")

	marks := make([]string, len(t.columns))
	for row := range rows {
		for column := range marks {
			marks[column] = mark(row*len(marks) + column + 1)
		}

		if row > 0 {
			b.WriteString(", ")
		}

		b.WriteString("(" + strings.Join(marks, ", ") + ")")
	}

	b.WriteString(" ON CONFLICT (" + t.key + ") DO ")

	if t.frozen {
		b.WriteString("NOTHING")
		return b.String()
	}

	b.WriteString("UPDATE SET ")

	sep := ""
	for _, column := range t.columns {
		if !slices.Contains(t.fixed, column) {
			b.WriteString(sep + column + " = excluded." + column)
			sep = ", "
		}
	}

	if t.guard {
		b.WriteString(" WHERE excluded.seq >= " + t.name + ".seq")
	}

	return b.String()
}

// remove returns the statement that deletes a number of rows by their key.
func (t *table) remove(rows int, mark func(int) string) string {
	keys := strings.Split(t.key, ", ")
	choices := make([]string, rows)
	for i := range choices {
		columns := make([]string, len(keys))
		for k, column := range keys {
			columns[k] = column + " = " + mark(i*len(keys)+k+1)
		}

		choices[i] = strings.Join(columns, " AND ")
	}

	if len(keys) > 1 {
		return "DELETE FROM " + t.name + " WHERE (" + strings.Join(choices, ") OR (") + ")"
	}

	marks := make([]string, rows)
	for i := range marks {
		marks[i] = mark(i + 1)
	}

	text := "DELETE FROM " + t.name + " WHERE " + t.key + " IN (" + strings.Join(marks, ", ") + ")"
	if t.unless != "" {
		text += " AND NOT " + t.unless
	}

	return text
}

// stmtKey identifies a prepared statement.
type stmtKey struct {
	table  *table
	rows   int
	remove bool
	text   string // of a statement that is about no table of the yard
}

// prepareStmt prepares a statement if it was not prepared before.
func (s *Store) prepareStmt(ctx context.Context, key stmtKey) error {
	if s.stmts[key] != nil {
		return nil
	}

	var text string
	switch {
	case key.table == nil:
		text = key.text
	case key.remove:
		text = key.table.remove(key.rows, s.engine.mark)
	default:
		text = key.table.insert(key.rows, s.engine.mark)
	}

	stmt, err := s.write.PrepareContext(ctx, text) //nolint:sqlclosecheck // kept for later commits; Close closes it
	if err != nil {
		return err
	}

	s.stmts[key] = stmt

	return nil
}

package sql

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheVocabularyMigrationRenamesWhatIsStored fills a store of schema 4 with the old words and reads what the
// migration made of them.
func TestTheVocabularyMigrationRenamesWhatIsStored(t *testing.T) {
	t.Parallel()

	rows := []string{
		`INSERT INTO leases (num, id, seq, state, owner, project, job, asked, ended, doc) VALUES
			(21, 'l21', 1, 'asked', '', '', '', 5, 0, '{"Offer":{"bills":"1h","least":"1m","most":2,"losses":0.5},"State":"asked","Asked":"t"}'),
			(22, 'l22', 1, 'returning', '', '', '', 6, 0, '{"State":"returning","Reason":"say \"Asked\":","Returned":"t"}')`,
		`INSERT INTO records (kind, id, seq, doc) VALUES
			('limit', 'user/x', 1, '{"Subject":{"user":"x"},"Seq":1,"Money":5,"At":"ask","WarnAt":0.8}'),
			('total', 'user/x', 0, '{"Subject":{"user":"x"},"GPUSeconds":1,"Money":2}'),
			('told', 'user/x', 0, '{"Mark":"a","UsedUp":true}'),
			('meter', 'n9', 0, '{"status":{"rest":"drained"},"rates":{"rent":[1],"hired":true,"bills":3,"least":4}}')`,
		`INSERT INTO documents (kind, id, at, doc) VALUES
			('curve', 'j9/heard', 1, '{"name":"heard","heard":3,"bad":1,"badall":2,"badat":4}'),
			('forecast', 'j9', 1, '{"said":["late"]}')`,
		`INSERT INTO events (seq, at, kind, actor, owner, job, run, node, from_state, to_state, reason, lease) VALUES
			(90, 1, 'node.drained', '', '', '', '', 'n9', '', '', '', ''),
			(91, 1, 'lease.returning', '', '', '', '', '', 'active', 'returning', '', 'l22')`,
	}

	want := map[string][]string{
		`SELECT state || ' ' || doc FROM leases WHERE num > 20 ORDER BY num`: {
			`requested {"Offer":{"billing_increment":"1h","min_billing":"1m","max_nodes":2,"loss_rate":0.5},"State":"requested","Requested":"t"}`,
			`releasing {"State":"releasing","Reason":"say \"Asked\":","Released":"t"}`,
		},
		`SELECT kind || ' ' || doc FROM records WHERE id IN ('user/x', 'n9') ORDER BY kind`: {
			`meter {"status":{"rest":"cordoned"},"rates":{"hourly":[1],"on_demand":true,"billing_unit":3,"min_billed":4}}`,
			`notice {"mark":"a","used_up":true}`,
			`quota {"subject":{"user":"x"},"seq":1,"budget":5,"on_exceeded":"ask","warn_at":0.8}`,
			`usage {"subject":{"user":"x"},"gpu_seconds":1,"cost":2}`,
		},
		`SELECT doc FROM documents WHERE id LIKE 'j9%' ORDER BY kind`: {
			`{"name":"heard","count":3,"non_finite":1,"non_finite_total":2,"non_finite_at":4}`,
			`{"notices":["late"]}`,
		},
		`SELECT kind || ' ' || from_state || ' ' || to_state FROM events WHERE seq >= 90 ORDER BY seq`: {
			`node.cordoned  `,
			`lease.releasing active releasing`,
		},
	}

	onEngines(t, func(t engineTest) {
		openAt(t.T, t.url, 4)

		old := bare(t.T, t.url)
		for _, statement := range rows {
			if _, err := old.write.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}

		if err := old.Close(); err != nil {
			t.Fatal(err)
		}

		s := writer(t, t.url, "server-2")
		for query, lines := range want {
			if diff := cmp.Diff(lines, column(t, s, query)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
	})
}

// column reads a query of one column of text.
func column(t engineTest, s *Store, query string) []string {
	t.Helper()

	rows, err := s.read.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }() // it was only read

	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}

		list = append(list, text)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return list
}

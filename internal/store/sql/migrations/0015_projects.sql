-- Projects with members, what created a token, and the highest priority of a user's jobs. A project with a quota gets a
-- record, and the owners of its jobs are its members, so that those who use it go on; nobody else may from now on.

ALTER TABLE users ADD COLUMN extras TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN extras TEXT NOT NULL DEFAULT '';

-- Tokens that could create others until now still can; what they create ends with them.
UPDATE tokens SET scope = 'tokens' WHERE kind = 'access' AND scope = 'submit';

INSERT INTO records (kind, id, seq, doc)
SELECT 'project', substr(id, 9), 1, '{"id":"' || substr(id, 9) || '","seq":1}'
FROM records WHERE kind = 'quota' AND id LIKE 'project/%' AND doc NOT LIKE '%"removed":true%';

INSERT INTO records (kind, id, seq, doc)
SELECT DISTINCT 'member', jobs.project || '/' || jobs.owner, 1,
	'{"project":"' || jobs.project || '","user":"' || jobs.owner || '","seq":1}'
FROM jobs JOIN records ON records.kind = 'project' AND records.id = jobs.project
JOIN users ON users.id = jobs.owner;

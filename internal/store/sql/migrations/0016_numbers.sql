-- Every user has a number of their own, from which nodes derive the account of the user's jobs. It is never given to another
-- user: an incarnation of the yard keeps the greatest number that earlier ones may have used. Those who are there are
-- numbered by age.

ALTER TABLE users ADD COLUMN number BIGINT NOT NULL DEFAULT 0;

UPDATE users SET number = (
	SELECT COUNT(*) FROM users AS older
	WHERE older.created < users.created OR (older.created = users.created AND older.id <= users.id)
);

ALTER TABLE incarnations ADD COLUMN last_user BIGINT NOT NULL DEFAULT 0;

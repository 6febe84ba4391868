#!/bin/sh
# Makes the secrets that infra/compose.yaml reads, once: what is there already stays. They are for this server only; git ignores them.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets  # the folder keeps others out; the files are readable for the services' users, who see nothing but their own

new() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { if [ -e "secrets/$1" ]; then cat > /dev/null; else cat > "secrets/$1"; chmod 444 "secrets/$1"; fi; }

new | keep postgres_password
printf 'hetrl:%s' "$(new)" | keep prefect_auth
if [ ! -e secrets/aws_credentials ]; then
    id="hetrl$(new | cut -c1-12)" secret="$(new)"
    rm -f secrets/s3_identities.json
    printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$id" "$secret" | keep aws_credentials
    printf '{"identities": [{"name": "hetrl", "actions": ["Admin"], "credentials": [{"accessKey": "%s", "secretKey": "%s"}]}]}\n' \
        "$id" "$secret" | keep s3_identities.json
fi
echo "secrets are in $(pwd)/secrets; the Prefect UI asks for what is in prefect_auth"

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("fire_id", models.CharField(db_index=True, max_length=64)),
                ("key", models.CharField(db_index=True, max_length=200)),
                ("at", models.DateTimeField()),
            ],
        ),
    ]
